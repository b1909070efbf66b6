package sqllock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// longTransaction is for how long a transaction may be open before it is worth a word:
	// rows that have been replaced are kept as long as it could see them, and sessions are
	// replaced at each renewal.
	longTransaction = 5 * time.Minute
	// manyDead rows are more than an autovacuum leaves in tables as small as ours.
	manyDead = 50_000
	// lowConnections left are hardly enough for one more process.
	lowConnections = 10
)

// durabilityPostgres checks that commits wait for the disk.
func (x *examination) durabilityPostgres() lockkeeper.Finding {
	const check = "durability"
	var commits, fsync, pages string
	err := x.one("SELECT current_setting('synchronous_commit'), current_setting('fsync'), "+
		"current_setting('full_page_writes')", &commits, &fsync, &pages)
	if err != nil {
		return x.unseen(check, err)
	}
	detail := fmt.Sprintf("synchronous_commit %s, fsync %s, full_page_writes %s", commits, fsync, pages)
	switch {
	case fsync == "off":
		return doubtful(check, detail+": a loss of power may ruin the database, or undo grants that were answered",
			"fsync = on, in postgresql.conf")
	case commits == "off":
		return doubtful(check, detail+": if the server crashes it may forget grants of the last second, "+
			"and make them again to others",
			"synchronous_commit = on, or for this user alone: ALTER ROLE ... SET synchronous_commit = on")
	case pages == "off":
		return doubtful(check, detail+": a loss of power may ruin the database, unless its file system writes whole pages",
			"full_page_writes = on, in postgresql.conf")
	}
	return fine(check, "%s: what is answered is on the server's disk", detail)
}

// replicationPostgres checks what a failover may lose.
func (x *examination) replicationPostgres() lockkeeper.Finding {
	const check = "failover"
	const remedy = "name standbys in synchronous_standby_names, with synchronous_commit on; or see to it that holders " +
		"are stopped before another server takes over"
	standby, following, synchronous, commits, behind := false, 0, 0, "", int64(0)
	err := x.one(`SELECT pg_is_in_recovery(), current_setting('synchronous_commit'),
		count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
			coalesce(max(CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_lsn(),
			flush_lsn) END), 0)::bigint
		FROM pg_stat_replication`, &standby, &commits, &following, &synchronous, &behind)
	if err != nil {
		return x.unseen(check, err)
	}
	names := ""
	if err := x.one("SELECT current_setting('synchronous_standby_names')", &names); err != nil {
		return x.unseen(check, err)
	}
	switch {
	case standby:
		return broken(check, "this server is a standby, which can only be read",
			"name the primary; target_session_attrs=read-write in the URL finds it among several hosts")
	case names != "" && (commits == "off" || commits == "local"):
		return doubtful(check, fmt.Sprintf("synchronous_standby_names is %q, but synchronous_commit %s does not wait for "+
			"them: a server that takes over may not know of the latest grants, and make them again", names, commits),
			"synchronous_commit = on, or for this user alone: ALTER ROLE ... SET synchronous_commit = on")
	case names != "":
		return fine(check, "commits wait for standbys (synchronous_standby_names %q, synchronous_commit %s; %d follow): "+
			"one of those loses nothing when it takes over", names, commits, following)
	case following == 0:
		return fine(check, "nobody follows this server as a standby; a copy from a backup would not know of later grants")
	}
	return doubtful(check, fmt.Sprintf("%d standbys follow asynchronously, the last %s behind: one that takes over may "+
		"not know of the latest grants, and so make them again, with fences that were used", following, size(behind)), remedy)
}

// noticesPostgres tries whether notices arrive.
func (x *examination) noticesPostgres() lockkeeper.Finding {
	const check = "wake-ups"
	channel := "lockkeeper_examine_" + strings.ToLower(rand.Text())
	var took time.Duration
	err := x.e.dialect.with(x.ctx, x.e.db.pool, func(l link) error {
		conn := l.(postgresLink).conn
		if _, err := conn.Exec(x.ctx, "LISTEN "+channel); err != nil {
			return err
		}
		began := time.Now()
		if _, err := x.e.db.pool.ExecContext(x.ctx, "SELECT pg_notify($1, '')", channel); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(x.ctx, echoBound)
		defer cancel()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		took = time.Since(began)
		_, err := conn.Exec(x.ctx, "UNLISTEN "+channel)
		return err
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && x.ctx.Err() == nil:
		return doubtful(check, fmt.Sprintf("the server's notices don't arrive, as behind a proxy that lends connections "+
			"to one transaction: a process with waiting claims polls every %s to %s instead, which costs the server "+
			"some work", pollFirst, pollLast),
			"nothing need be done; it is a little quicker if the URL names the server itself, or a proxy that lends "+
				"connections to sessions")
	case err != nil:
		return x.unseen(check, err)
	}
	return fine(check, "a notice arrives after %s", brief(took))
}

// connections checks how many more connections the server accepts.
func (x *examination) connections() lockkeeper.Finding {
	const check = "connections"
	text := `SELECT count(*),
		current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
		FROM pg_stat_activity WHERE pid IS NOT NULL AND datid IS NOT NULL`
	if x.e.db.flavour == mysql {
		text = `SELECT (SELECT variable_value FROM information_schema.global_status
			WHERE variable_name = 'Threads_connected'), @@max_connections`
	}
	var used, most int
	if err := x.one(text, &used, &most); err != nil {
		return x.unseen(check, err)
	}
	pool := x.e.db.pool.Stats()
	detail := fmt.Sprintf("%d of %d of the server's are in use; this process may have %d", used, most,
		pool.MaxOpenConnections)
	if pool.MaxOpenConnections == 0 {
		detail = fmt.Sprintf("%d of %d of the server's are in use; this process has no bound of its own", used, most)
	}
	if most-used < lowConnections {
		return doubtful(check, detail, "raise max_connections, put a pooler before the server, or have each process use "+
			"fewer: pool=N in the URL; without a connection nothing can be renewed")
	}
	return fine(check, "%s", detail)
}

// tablesPostgres checks the size of the tables, and that dead rows are removed.
func (x *examination) tablesPostgres() lockkeeper.Finding {
	const check = "tables"
	var bytes, live, dead int64
	vacuums, last := "", ""
	err := x.ask(
		statement{text: `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint, coalesce(sum(n_live_tup),
			0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint,
				coalesce(to_char(max(last_autovacuum), 'YYYY-MM-DD HH24:MI:SS'), 'never') FROM pg_stat_user_tables
				WHERE schemaname = $1`,
			args: []any{x.e.db.prefix}, each: func(scan scanner) error { return scan(&bytes, &live, &dead, &last) }},
		x.row("SELECT current_setting('autovacuum')", &vacuums))
	if err != nil {
		return x.unseen(check, err)
	}
	detail := fmt.Sprintf("%s, %d rows and %d that are dead, last vacuumed by the server: %s", size(bytes), live, dead,
		last)
	switch {
	case vacuums == "off":
		return doubtful(check, detail+"; autovacuum is off, so the tables grow with every renewal",
			"autovacuum = on, in postgresql.conf; VACUUM helps until then")
	case dead > manyDead && dead > live:
		return doubtful(check, detail+": everything is slower", "see what is said of old transactions, then VACUUM; an "+
			"autovacuum that comes more often (autovacuum_naptime) keeps them small")
	}
	return fine(check, "%s", detail)
}

// purgingPostgres looks for what keeps dead rows from being removed.
func (x *examination) purgingPostgres() lockkeeper.Finding {
	const check = "old transactions"
	var who, remedy string
	var seconds float64
	found := false
	err := x.ask(statement{
		text: `SELECT who, remedy, seconds FROM (
			SELECT 'process ' || pid || ' of ' || usename || coalesce(' (' || nullif(application_name, '')
			|| ')', '') || ', ' || state AS who,
				'SELECT pg_terminate_backend(' || pid
				|| '), if it may end; idle_in_transaction_session_timeout bounds such' AS remedy,
				extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
			FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL
			AND pid <> pg_backend_pid() AND usename IS NOT NULL
			UNION ALL
			SELECT 'the prepared transaction ' || gid, 'COMMIT PREPARED or ROLLBACK PREPARED '
			|| quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)::float8
			FROM pg_prepared_xacts WHERE database = current_database()) AS open
			ORDER BY seconds DESC LIMIT 1`,
		each: func(scan scanner) error {
			found = true
			return scan(&who, &remedy, &seconds)
		},
	})
	age := time.Duration(seconds * float64(time.Second))
	switch {
	case err != nil:
		return x.unseen(check, err)
	case found && age > longTransaction:
		return doubtful(check, fmt.Sprintf("%s has had a transaction open for %s: meanwhile no row that was replaced can "+
			"be removed, and everything gets slower", who, brief(age)), remedy)
	case found:
		return fine(check, "the oldest that this user can see is open for %s", brief(age))
	}
	return fine(check, "none is open that this user can see")
}

// keeperPostgres says which transaction keeps the row of a session locked: its mark on the row
// shows it, unless several have locked the row.
func (x *examination) keeperPostgres(session string) (detail, remedy string) {
	const check = "SELECT pid, state, xact_start FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start"
	pid := 0
	err := x.ask(statement{
		text: x.e.db.sql(`SELECT a.pid, 'process ' || a.pid || ' of ' || coalesce(a.usename, '?') || coalesce(' ('
			|| nullif(a.application_name, '') || ')', '') ||
				coalesce(', ' || a.state, '') || coalesce(', its transaction open for ' || round(extract(epoch
				FROM clock_timestamp() - a.xact_start)) || ' s', '')
			FROM {sessions} s JOIN pg_stat_activity a ON a.backend_xid = s.xmax WHERE s.id = $1`),
		args: []any{session}, each: func(scan scanner) error { return scan(&pid, &detail) },
	})
	if err != nil || pid == 0 {
		return "", "end the transaction that keeps them, by pg_terminate_backend(pid); candidates are: " + check
	}
	return "; it is " + detail, fmt.Sprintf("end that transaction: SELECT pg_terminate_backend(%d)", pid)
}
