package sqllock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// variable is the value of a variable of the server; "" if it has none of that name.
func (x *examination) variable(name string) (value string, err error) {
	err = x.ask(statement{
		text: "SHOW GLOBAL VARIABLES WHERE Variable_name = '" + name + "'",
		each: func(scan scanner) error { return scan(&name, &value) },
	})
	return value, err
}

// counter is the value of a counter of the server; "" if it has none of that name.
func (x *examination) counter(name string) (value string, err error) {
	err = x.ask(statement{
		text: "SHOW GLOBAL STATUS WHERE Variable_name = '" + name + "'",
		each: func(scan scanner) error { return scan(&name, &value) },
	})
	return value, err
}

// durabilityMySQL checks that commits wait for the disk.
func (x *examination) durabilityMySQL() lockkeeper.Finding {
	const check = "durability"
	var flush, pages, log, sync string
	if err := x.one("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@log_bin, @@sync_binlog", &flush,
		&pages, &log, &sync); err != nil {
		return x.unseen(check, err)
	}
	detail := fmt.Sprintf("innodb_flush_log_at_trx_commit %s, innodb_doublewrite %s, sync_binlog %s", flush, pages, sync)
	if log == "0" {
		detail = fmt.Sprintf("innodb_flush_log_at_trx_commit %s, innodb_doublewrite %s, no binary log", flush, pages)
	}
	switch {
	case flush != "1" && flush != "3":
		return doubtful(check, detail+": a crash may undo grants of the last second, and make them again "+
			"to others", "innodb_flush_log_at_trx_commit = 1, in my.cnf")
	case pages == "0" || pages == "OFF":
		return doubtful(check, detail+": a loss of power may ruin the database, unless its file system writes whole pages",
			"innodb_doublewrite = ON, in my.cnf")
	case log != "0" && sync != "1":
		return doubtful(check, detail+": after a loss of power replicas may lack grants that this server knows of",
			"sync_binlog = 1, in my.cnf, if a replica may take over")
	}
	return fine(check, "%s: what is answered is on the server's disk", detail)
}

// replicationMySQL checks what a failover may lose.
func (x *examination) replicationMySQL() lockkeeper.Finding {
	const check = "failover"
	readOnly, err := x.variable("read_only")
	if err != nil {
		return x.unseen(check, err)
	}
	cluster, _ := x.variable("wsrep_on")
	semi, _ := x.variable("rpl_semi_sync_master_enabled")
	waiting, _ := x.counter("Rpl_semi_sync_master_clients")
	if semi == "" { // as MySQL calls it
		semi, _ = x.variable("rpl_semi_sync_source_enabled")
		waiting, _ = x.counter("Rpl_semi_sync_source_clients")
	}
	replicas, dump := 0, ""
	err = x.one("SELECT count(*), coalesce(min(command), '') FROM information_schema.processlist WHERE command LIKE "+
		"'Binlog Dump%'", &replicas, &dump)
	if err != nil {
		return x.unseen(check, err)
	}
	switch {
	case cluster == "ON":
		return doubtful(check, "this is a node of a Galera cluster, whose nodes don't see each other's row locks",
			"have all processes name the same one node, and stop holders before another one is named: through two nodes at "+
				"once two may hold the same lock")
	case readOnly == "ON" || readOnly == "1":
		return broken(check, "read_only is on: this server is a replica, or is kept as it is",
			"name the server that can be written to")
	case semi == "ON" && waiting != "" && waiting != "0":
		return fine(check, "commits wait until one of %s replicas has them, or until a time-out (semi-synchronous): one "+
			"of those loses nothing when it takes over, if no time-out came before", waiting)
	case semi == "ON":
		return doubtful(check, "semi-synchronous replication is on, but no replica takes part: what takes over may not "+
			"know of the latest grants, and make them again", "see why the replicas don't")
	case replicas == 0:
		return fine(check, "no replica is to be seen by this user; one that takes over, or a copy from a backup, may not "+
			"know of the latest grants")
	}
	return doubtful(check, fmt.Sprintf("%d replicas follow asynchronously: one that takes over may not know of the "+
		"latest grants, and so make them again, with fences that were used", replicas),
		"semi-synchronous replication (rpl_semi_sync_master_enabled); or see to it that holders are stopped before "+
			"another server takes over")
}

// noticesMySQL says how waiting claims are woken.
func (x *examination) noticesMySQL() lockkeeper.Finding {
	return fine("wake-ups", "this server gives no notices: a process with waiting claims polls every %s to %s",
		pollFirst, pollLast)
}

// tablesMySQL checks the size of the tables.
func (x *examination) tablesMySQL() lockkeeper.Finding {
	const check = "tables"
	var bytes, rows int64
	err := x.ask(statement{
		text: "SELECT coalesce(sum(data_length + index_length), 0), coalesce(sum(table_rows), 0) FROM " +
			"information_schema.tables WHERE table_schema = database() AND left(table_name, char_length(?)) = ?",
		args: []any{x.e.db.prefix, x.e.db.prefix}, each: func(scan scanner) error { return scan(&bytes, &rows) },
	})
	if err != nil {
		return x.unseen(check, err)
	}
	return fine(check, "%s, about %d rows", size(bytes), rows)
}

// purgingMySQL looks for what keeps dead rows from being removed.
func (x *examination) purgingMySQL() lockkeeper.Finding {
	const check = "old transactions"
	id, seconds, err := x.oldest()
	age := time.Duration(seconds) * time.Second
	switch {
	case err != nil:
		return x.unseen(check, err)
	case age > longTransaction:
		return doubtful(check, fmt.Sprintf("connection %d has had a transaction open for %s: meanwhile no row that was "+
			"replaced can be removed, and everything gets slower", id, brief(age)),
			fmt.Sprintf("KILL %d, if it may end; idle_transaction_timeout bounds such", id))
	}
	return fine(check, "the oldest is open for %s", brief(age))
}

// oldest is the connection with the longest open transaction; 0 if there is none.
func (x *examination) oldest() (id, seconds int64, err error) {
	err = x.ask(statement{
		text: "SELECT trx_mysql_thread_id, timestampdiff(SECOND, trx_started, now()) FROM information_schema.innodb_trx " +
			"WHERE trx_mysql_thread_id NOT IN (0, connection_id()) ORDER BY trx_started, trx_id LIMIT 1",
		each: func(scan scanner) error { return scan(&id, &seconds) },
	})
	return id, seconds, err
}

// keeperMySQL guesses which transaction keeps rows locked: the server only says which transactions
// wait for which.
func (x *examination) keeperMySQL() (detail, remedy string) {
	const check = "SELECT trx_mysql_thread_id, trx_started, trx_rows_locked FROM information_schema.innodb_trx ORDER " +
		"BY trx_started"
	id, seconds, err := x.oldest()
	if err != nil || id == 0 {
		return "", "end the transaction that keeps them, by KILL; candidates are: " + check
	}
	return fmt.Sprintf("; it may be connection %d, whose transaction is open for %d s", id, seconds),
		fmt.Sprintf("end that transaction: KILL %d; to see others: %s", id, check)
}
