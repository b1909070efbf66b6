package sqllock

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// hold implements dialect. If the count is wrong, a query that may return one row returns two,
// which is an error: so the server does not run the later statements of the packet.
func (d mysqlDialect) hold(all []session) []statement {
	keys, moved := make([][]any, len(all)), make([][]any, len(all))
	for i := range all {
		keys[i] = []any{all[i].ID, all[i].version}
		moved[i] = []any{all[i].ID, all[i].Acked, all[i].LowestOpen}
	}
	from, args := d.byKey("sessions", columns{"id, version", []string{"version"}}, keys)
	list, _ := json.Marshal(moved) // they are strings and numbers
	return []statement{{
		text: patiently("IF(count(*) = ?, 1, (SELECT 1 UNION ALL SELECT 2)) FROM " + from + " FOR UPDATE"),
		args: append([]any{int64(len(all))}, args...), each: func(scanner) error { return nil },
	}, {
		text: d.sql("UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[0]', acked BIGINT " +
			"PATH '$[1]', lowest_open BIGINT PATH '$[2]')) k " +
			"STRAIGHT_JOIN {sessions} t FORCE INDEX (PRIMARY) ON t.id = k.id SET t.acked = k.acked, t.lowest_open = " +
			"k.lowest_open, " +
			"t.version = t.version + 1"),
		args: []any{string(list)},
	}}
}

// rowsAtOnce and bytesAtOnce bound a statement that writes rows.
const (
	rowsAtOnce  = 256
	bytesAtOnce = packetSize / 4
)

// insert inserts rows. An existing row is an error; with key it is updated: key has the columns
// that identify it.
func (d mysqlDialect) insert(into string, c columns, all [][]any, key ...string) (statements []statement) {
	names, end := c.but(), ""
	text := d.sql("INSERT INTO {" + into + "} (`" + strings.Join(names, "`, `") + "`) VALUES ")
	if len(key) > 0 {
		var set []string
		for _, name := range c.but(key...) {
			set = append(set, "`"+name+"` = VALUES(`"+name+"`)")
		}
		end = " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
	}
	row := "(" + marks(len(names)) + ")"
	for len(all) > 0 {
		n := 0
		s := statement{text: text}
		for n < len(all) && n < rowsAtOnce && s.size() < bytesAtOnce {
			s.args = append(s.args, all[n]...)
			n++
		}
		s.text += repeat(row, n) + end
		statements, all = append(statements, s), all[n:]
	}
	return statements
}

// putSessions implements dialect. The changed rows exist, since they are held.
func (d mysqlDialect) putSessions(new, changed []session) []statement {
	return append(d.insert("sessions", sessionColumns, sessionRows(new)),
		d.insert("sessions", sessionColumns, sessionRows(changed), "id")...)
}

// putClaims implements dialect.
func (d mysqlDialect) putClaims(new, changed []*rows.Claim, gone []lockkeeper.Ref) ([]statement, error) {
	values, err := claimRows(slices.Concat(new, changed))
	if err != nil {
		return nil, err
	}
	return append(d.insert("claims", claimsColumns, values, "session", "id"),
		d.remove("claims", keyOfClaims, refKeys(gone))...), nil
}

// putTargets implements dialect.
func (d mysqlDialect) putTargets(old, new []targetRow) []statement {
	return append(d.remove("targets", keyOfTargets, targetKeys(old)),
		d.insert("targets", targetColumns, targetValues(new), keyOfTargets.but()...)...)
}

// remove removes rows by a unique key.
func (d mysqlDialect) remove(from string, key columns, keys [][]any) (statements []statement) {
	for some := range slices.Chunk(keys, rowsAtOnce) {
		found, args := d.byKey(from, key, some)
		statements = append(statements, statement{text: "DELETE t FROM " + found, args: args})
	}
	return statements
}

// putFreezes implements dialect.
func (d mysqlDialect) putFreezes(ended []lockkeeper.Path, new []table.FreezeRecord) []statement {
	var keys [][]any
	for _, path := range ended {
		keys = append(keys, []any{string(path)})
	}
	return append(d.remove("freezes", columns{"path", nil}, keys),
		d.insert("freezes", freezeColumns, freezeValues(new), "path")...)
}

// putHoldTimes implements dialect.
func (d mysqlDialect) putHoldTimes(all []table.HoldTimeRecord) []statement {
	return d.insert("hold_times", holdTimeColumns, holdTimeValues(all), "path")
}

// dropEnded implements dialect.
func (d mysqlDialect) dropEnded(session string, keep bool) statement {
	if keep {
		return statement{text: d.sql("UPDATE {claims} FORCE INDEX (PRIMARY) SET forget_ns = 0, unacked_ns = 0 " +
			"WHERE session = ? AND state = 'ended'"), args: []any{session}}
	}
	return statement{text: d.sql("DELETE c FROM {claims} c FORCE INDEX (PRIMARY) WHERE c.session = ? AND c.state = " +
		"'ended'"), args: []any{session}}
}

// announceWatcher implements dialect.
func (d mysqlDialect) announceWatcher(process string, until time.Duration) statement {
	return statement{
		text: d.sql("INSERT INTO {watchers} (process, until_ns) VALUES (?, ?) ON DUPLICATE KEY UPDATE until_ns = " +
			"VALUES(until_ns)"),
		args: []any{process, int64(until)},
	}
}

// sendWakeups implements dialect.
func (d mysqlDialect) sendWakeups(wakeups []wakeup, now time.Duration) []statement {
	return d.insert("wakeups", wakeupColumns, wakeupValues(wakeups, now))
}

// readWakeups implements dialect.
func (d mysqlDialect) readWakeups(process string, each func(n int, c *rows.Claim)) statement {
	return statement{
		text: d.sql("SELECT STRAIGHT_JOIN " + claimColumns("c") + ", b.n FROM {wakeups} b FORCE INDEX (wakeups_by_process) " +
			"JOIN {claims} c FORCE INDEX (PRIMARY) ON c.session = b.session AND c.id = b.id WHERE b.process = ?"),
		args: []any{process}, each: claimReader(each),
	}
}

// removeWakeups implements dialect.
func (d mysqlDialect) removeWakeups(_ string, wakeups []int) []statement {
	var keys [][]any
	for _, n := range wakeups {
		keys = append(keys, []any{int64(n)})
	}
	all := append(d.begin(patience{latchPatience, idleFirst}), d.remove("wakeups", columns{"n", []string{"n"}}, keys)...)
	return append(all, d.commit())
}

// overdue implements dialect.
func (d mysqlDialect) overdue(before time.Duration, each func(id string)) statement {
	return statement{
		text: d.sql("(SELECT id FROM {sessions} WHERE state = 'open' AND deadline_ns < ? ORDER BY deadline_ns LIMIT 20) " +
			"UNION ALL" +
			" (SELECT s.id FROM {sessions} s WHERE s.state = 'closed' AND s.deadline_ns < ?" +
			" AND EXISTS (SELECT 1 FROM {claims} c WHERE c.session = s.id AND c.state <> 'ended') ORDER BY s.deadline_ns " +
			"LIMIT 20)"),
		args: []any{int64(before), int64(before)}, each: idReader(each),
	}
}

const (
	// spareNumbers is how many rows of sequences are kept. Running transactions have locked the
	// latest ones.
	spareNumbers = 1000
	// mostPurged is how many rows are removed at once, which takes about a second.
	mostPurged = 50000
)

// purge implements dialect. It skips rows that another transaction has locked until the next time,
// and removes rows of targets no later than their claims. A bound such as the oldest hold time has
// a SELECT of its own: within the DELETE, the server would lock the rows that it reads.
func (d mysqlDialect) purge(now, before time.Duration) []statement {
	const (
		end = " LIMIT ? FOR UPDATE SKIP LOCKED) old STRAIGHT_JOIN "
		of  = " JSON_TABLE(old.targets, '$[*]' COLUMNS (p VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.path')) j"
		on  = " ON t.path = j.p AND t.class = 4 AND t.`rank` = -old.priority AND t.ticket = old.ticket AND t.session = " +
			"old.session AND t.id = old.id"
	)
	n, b, most := int64(now), int64(before), int64(mostPurged)
	return []statement{
		d.alone("DELETE t FROM (SELECT session, id, priority, ticket, targets FROM {claims} FORCE INDEX (claims_by_end)"+
			" WHERE state = 'ended' AND ended_ns <= ? AND unacked_ns > 0 AND unacked_ns <= ?"+end+of+
			" STRAIGHT_JOIN {targets} t FORCE INDEX (PRIMARY)"+on, b, n, most),
		d.alone("DELETE c, t FROM (SELECT session, id, priority, ticket, IF(unacked_ns > 0, targets, '[]') AS targets FROM "+
			"{claims} FORCE INDEX (claims_by_end)"+
			" WHERE state = 'ended' AND ended_ns <= ? AND forget_ns <= ? AND unacked_ns <= ?"+end+
			"{claims} c FORCE INDEX (PRIMARY)"+
			" ON c.session = old.session AND c.id = old.id LEFT JOIN"+of+" ON TRUE LEFT JOIN {targets} t FORCE INDEX (PRIMARY)"+
			on, b, n, n, most),
		d.alone("DELETE s FROM (SELECT id FROM {sessions} o FORCE INDEX (sessions_by_deadline) WHERE state = 'closed' AND "+
			"deadline_ns <= ?"+
			" AND (SELECT count(*) FROM {claims} c FORCE INDEX (PRIMARY) WHERE c.session = o.id) = 0"+end+
			"{sessions} s FORCE INDEX (PRIMARY) ON s.id = old.id", b, most),
		d.alone("DELETE b FROM (SELECT n FROM {wakeups} WHERE sent_ns <= ?"+end+
			"{wakeups} b FORCE INDEX (PRIMARY) ON b.n = old.n", b, most),
		d.alone("DELETE f FROM (SELECT process FROM {watchers} WHERE until_ns <= ?"+end+
			"{watchers} f FORCE INDEX (PRIMARY) ON f.process = old.process", b, most),
		d.alone("SET @lockkeeper_oldest = NULL;\nSELECT at_ns INTO @lockkeeper_oldest FROM {hold_times} ORDER BY at_ns DESC "+
			"LIMIT 1 OFFSET ?;\n"+
			"DELETE p FROM (SELECT path FROM {hold_times} WHERE at_ns < @lockkeeper_oldest"+end+
			"{hold_times} p FORCE INDEX (PRIMARY) ON p.path = old.path", int64(table.MaxHoldTimes-1), most),
		d.alone("SELECT max(n) INTO @lockkeeper_newest FROM {sequences};\n"+
			"DELETE m FROM (SELECT n FROM {sequences} WHERE n < @lockkeeper_newest - ?"+end+
			"{sequences} m FORCE INDEX (PRIMARY) ON m.n = old.n", int64(spareNumbers), most),
	}
}

// alone is a statement that writes, in a transaction of its own.
func (d mysqlDialect) alone(text string, args ...any) statement {
	var all []string
	for _, s := range append(append(d.begin(patience{latchPatience, idleFirst}), statement{text: d.sql(text)}),
		d.commit()) {
		all = append(all, s.text)
	}
	return statement{text: strings.Join(all, ";\n"), args: args}
}

// listen implements dialect. MariaDB and MySQL send no notices.
func (mysqlDialect) listen() func(context.Context, *Engine, *listening) error { return nil }
