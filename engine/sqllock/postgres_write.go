package sqllock

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// hold implements dialect. A wrong count divides by zero, so that the server does not run the later
// statements of the pipeline.
func (d postgresDialect) hold(all []session) []statement {
	n := len(all)
	ids, versions, acked, lowest := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range all {
		ids[i], versions[i], acked[i], lowest[i] = all[i].ID, all[i].version, int64(all[i].Acked), int64(all[i].LowestOpen)
	}
	row := "s." + strings.ReplaceAll(sessionColumns.names, ", ", ", s.")
	row = strings.NewReplacer("s.acked", "v.acked", "s.lowest_open", "v.lowest_open", "s.version",
		"s.version + 1").Replace(row)
	return []statement{{
		text: d.sql(`WITH held AS MATERIALIZED (SELECT ` + row +
			` FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS v(id, version, acked, lowest_open)
			CROSS JOIN LATERAL (SELECT * FROM {sessions} o WHERE o.id = v.id
			AND o.version = v.version OFFSET 0 FOR UPDATE) s),
			moved AS (INSERT INTO {sessions} (` + sessionColumns.names + `) SELECT * FROM held
			ON CONFLICT (id) DO UPDATE SET acked = excluded.acked, lowest_open = excluded.lowest_open,
			version = excluded.version RETURNING 1)
			SELECT 1 / (count(*) = $5)::int FROM moved`),
		args: []any{ids, versions, acked, lowest, int64(n)},
	}}
}

// arrays returns a list of rows as a table expression, and its arguments: an array for each column.
func (c columns) arrays(all [][]any) (from string, args []any) {
	var casts []string
	for i, name := range strings.Split(c.names, ", ") {
		kind, column := "text", any(nil)
		if slices.Contains(c.numbers, name) {
			kind, column = "bigint", columnOf[int64](all, i)
		} else {
			column = columnOf[string](all, i)
		}
		args = append(args, column)
		casts = append(casts, "$"+strconv.Itoa(i+1)+"::"+kind+"[]")
	}
	return "unnest(" + strings.Join(casts, ", ") + ") AS n(" + c.names + ")", args
}

// columnOf is column i: a []T, or a []*T if it has nils, which stand for NULL.
func columnOf[T any](all [][]any, i int) any {
	column := make([]T, len(all))
	for j, row := range all {
		v, ok := row[i].(T)
		if !ok {
			return columnWithNulls[T](all, i)
		}
		column[j] = v
	}
	return column
}

func columnWithNulls[T any](all [][]any, i int) []*T {
	column := make([]*T, len(all))
	for j, row := range all {
		if v, ok := row[i].(T); ok {
			column[j] = &v
		}
	}
	return column
}

// orUpdate updates rows that exist, which these columns identify, so that an index finds them. For
// an UPDATE joined with a list the planner might read all rows while a table is small, and keep to
// that plan when the table has grown.
func (d postgresDialect) orUpdate(c columns, keys ...string) string {
	var all []string
	for _, name := range c.but(keys...) {
		all = append(all, name+" = excluded."+name)
	}
	return ` ON CONFLICT (` + strings.Join(keys, ", ") + `) DO UPDATE SET ` + strings.Join(all, ", ")
}

// remove removes rows by a unique key. No other transaction touches them.
func (d postgresDialect) remove(from string, key columns, keys [][]any) statement {
	list, args := key.arrays(keys)
	var equal []string
	for _, name := range key.but() {
		equal = append(equal, "o."+name+" = n."+name)
	}
	return statement{args: args, text: d.sql(`DELETE FROM {` + from + `} WHERE ctid = ANY(ARRAY(SELECT l.ctid FROM ` +
		list +
		` CROSS JOIN LATERAL (SELECT o.ctid FROM {` + from + `} o
			WHERE ` + strings.Join(equal, " AND ") + ` OFFSET 0) l))`)}
}

// insert inserts rows; an existing row is an error.
func (d postgresDialect) insert(into string, c columns, all [][]any, or string) statement {
	from, args := c.arrays(all)
	return statement{text: d.sql(`INSERT INTO {` + into + `} (` + c.names + `) SELECT ` + c.names + `
		FROM ` + from + or),
		args: args}
}

// putSessions implements dialect.
func (d postgresDialect) putSessions(new, changed []session) (all []statement) {
	if len(new) > 0 {
		all = append(all, d.insert("sessions", sessionColumns, sessionRows(new), ""))
	}
	if len(changed) > 0 {
		all = append(all, d.insert("sessions", sessionColumns, sessionRows(changed), d.orUpdate(sessionColumns, "id")))
	}
	return all
}

// putClaims implements dialect.
func (d postgresDialect) putClaims(new, changed []*rows.Claim, gone []lockkeeper.Ref) (all []statement, err error) {
	for _, part := range []struct {
		claims []*rows.Claim
		or     string
	}{{new, ""}, {changed, d.orUpdate(claimsColumns, "session", "id")}} {
		values, err := claimRows(part.claims)
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			all = append(all, d.insert("claims", claimsColumns, values, part.or))
		}
	}
	if len(gone) > 0 {
		all = append(all, d.remove("claims", keyOfClaims, refKeys(gone)))
	}
	return all, nil
}

// putTargets implements dialect.
func (d postgresDialect) putTargets(old, new []targetRow) (all []statement) {
	if len(old) > 0 {
		all = append(all, d.remove("targets", keyOfTargets, targetKeys(old)))
	}
	if len(new) > 0 {
		all = append(all, d.insert("targets", targetColumns, targetValues(new), ""))
	}
	return all
}

// putFreezes implements dialect.
func (d postgresDialect) putFreezes(ended []lockkeeper.Path, new []table.FreezeRecord) (all []statement) {
	if len(ended) > 0 {
		all = append(all, statement{text: d.sql(`DELETE FROM {freezes} WHERE path = ANY($1)`),
			args: []any{plainPaths(ended)}})
	}
	if len(new) > 0 {
		all = append(all, d.insert("freezes", freezeColumns, freezeValues(new), d.orUpdate(freezeColumns, "path")))
	}
	return all
}

// putHoldTimes implements dialect.
func (d postgresDialect) putHoldTimes(all []table.HoldTimeRecord) []statement {
	return []statement{d.insert("hold_times", holdTimeColumns, holdTimeValues(all), d.orUpdate(holdTimeColumns, "path"))}
}

// dropEnded implements dialect.
func (d postgresDialect) dropEnded(session string, keep bool) statement {
	if keep {
		return statement{text: d.sql(`UPDATE {claims} SET forget_ns = 0, unacked_ns = 0
			WHERE session = $1 AND state = 'ended'`), args: []any{session}}
	}
	return statement{text: d.sql(`DELETE FROM {claims} WHERE session = $1 AND state = 'ended'`), args: []any{session}}
}

// announceWatcher implements dialect.
func (d postgresDialect) announceWatcher(process string, until time.Duration) statement {
	return statement{
		text: d.sql(`INSERT INTO {watchers} (process, until_ns) VALUES ($1, $2) ON CONFLICT (process)
			DO UPDATE SET until_ns = excluded.until_ns`),
		args: []any{process, int64(until)},
	}
}

// sendWakeups implements dialect. The server sends the notice with the commit; it names the
// processes, if there is room.
func (d postgresDialect) sendWakeups(wakeups []wakeup, now time.Duration) []statement {
	var processes []string
	for _, b := range wakeups {
		if len(processes) == 0 || processes[len(processes)-1] != b.process {
			processes = append(processes, b.process)
		}
	}
	const room = 100 // of about 8,000 bytes
	if len(processes) > room {
		processes = []string{everybody}
	}
	return []statement{
		d.insert("wakeups", wakeupColumns, wakeupValues(wakeups, now), ""),
		{text: `SELECT pg_notify($1, $2)`, args: []any{d.channel(), strings.Join(processes, " ")}},
	}
}

// everybody is the notice for all processes.
const everybody = "*"

// channel is the channel of notices.
func (d postgresDialect) channel() string {
	return "lockkeeper_" + strconv.FormatUint(uint64(d.number("")), 36)
}

// readWakeups implements dialect. There are few wakeups, but the planner might read all claims for
// them.
func (d postgresDialect) readWakeups(process string, each func(n int, c *rows.Claim)) statement {
	return statement{
		text: d.sql(`SELECT ` + claimColumns("c") + `, b.n FROM {wakeups} b
			CROSS JOIN LATERAL (SELECT * FROM {claims} o WHERE o.session = b.session AND o.id = b.id OFFSET 0) c
			WHERE b.process = $1`),
		args: []any{process}, each: claimReader(each),
	}
}

// removeWakeups implements dialect.
func (d postgresDialect) removeWakeups(process string, wakeups []int) []statement {
	return []statement{{text: d.sql(`DELETE FROM {wakeups} WHERE process = $1 AND n = ANY($2)`),
		args: []any{process, wakeups}}}
}

// overdue implements dialect.
func (d postgresDialect) overdue(before time.Duration, each func(id string)) statement {
	return statement{
		text: d.sql(`(SELECT id FROM {sessions} WHERE state = 'open' AND deadline_ns < $1 ORDER BY deadline_ns
			LIMIT 20) UNION ALL
			(SELECT id FROM {sessions} s WHERE state = 'closed' AND deadline_ns < $1
			AND EXISTS (SELECT FROM {claims} c WHERE c.session = s.id AND c.state <> 'ended') ORDER BY deadline_ns
			LIMIT 20)`), args: []any{int64(before)}, each: idReader(each),
	}
}

// purge implements dialect.
func (d postgresDialect) purge(now, before time.Duration) []statement {
	args := []any{int64(now), int64(before)}
	return []statement{
		{text: d.sql(`DELETE FROM {targets} t USING {claims} c WHERE c.state = 'ended' AND c.unacked_ns > 0
			AND c.unacked_ns <= $1 AND c.ended_ns <= $2
			AND t.session = c.session AND t.id = c.id AND t.class = 4 AND t.path IN (SELECT e ->> 'path'
			FROM json_array_elements(c.targets::json) e)`), args: args},
		{text: d.sql(`DELETE FROM {claims} WHERE state = 'ended' AND ended_ns <= $2 AND forget_ns <= $1
			AND unacked_ns <= $1`),
			args: args},
		{text: d.sql(`DELETE FROM {sessions} s WHERE state = 'closed' AND deadline_ns <= $1
			AND NOT EXISTS (SELECT FROM {claims} c WHERE c.session = s.id)`), args: args[1:]},
		{text: d.sql(`DELETE FROM {wakeups} WHERE sent_ns <= $1`), args: args[1:]},
		{text: d.sql(`DELETE FROM {watchers} WHERE until_ns <= $1`), args: args[1:]},
		{text: d.sql(`DELETE FROM {hold_times} WHERE at_ns < (SELECT at_ns FROM {hold_times}
			ORDER BY at_ns DESC OFFSET $1 LIMIT 1)`),
			args: []any{int64(table.MaxHoldTimes - 1)}},
	}
}
