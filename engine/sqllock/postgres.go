package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// postgresDialect speaks to Postgres. It sends statements in pipelines, and the values of many rows
// in arrays, so that a transaction takes two round trips whatever it does.
type postgresDialect struct {
	naming
	plainly *atomic.Bool // see database
}

// postgresLink is a connection of pgx.
type postgresLink struct{ conn *pgx.Conn }

// with implements dialect.
func (d postgresDialect) with(ctx context.Context, pool *sql.DB, do func(link) error) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var dbErr error
	stale := false
	err = conn.Raw(func(raw any) error {
		c := raw.(*stdlib.Conn).Conn() // pool.go has made sure of the driver
		if stale = d.stale(c); stale {
			return driver.ErrBadConn
		}
		dbErr = do(postgresLink{c})
		if c.IsClosed() || c.PgConn().TxStatus() != 'I' {
			return driver.ErrBadConn
		}
		return nil
	})
	switch {
	case stale:
		return d.with(ctx, pool, do) // it ends, since there are only so many connections
	case dbErr != nil:
		return dbErr
	}
	if errors.Is(err, driver.ErrBadConn) {
		return nil // it broke when everything was done
	}
	return err
}

// stale reports whether statements were prepared on c, although that does not work behind its
// pooler.
func (d postgresDialect) stale(c *pgx.Conn) bool {
	prepares, _ := c.PgConn().CustomData()[preparing].(bool)
	return prepares && d.plainly != nil && d.plainly.Load()
}

// send implements link.
func (l postgresLink) send(ctx context.Context, all []statement) error {
	batch := &pgx.Batch{}
	for _, s := range all {
		batch.Queue(s.text, s.args...)
	}
	results := l.conn.SendBatch(ctx, batch)
	for i := range all {
		if err := receive(results, all[i].each); err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

// receive reads the answer to one statement.
func receive(results pgx.BatchResults, each func(scan scanner) error) error {
	if each == nil {
		_, err := results.Exec()
		return err
	}
	found, err := results.Query()
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := each(found.Scan); err != nil {
			return err
		}
	}
	return found.Err()
}

// outcomeOf implements dialect.
func (d postgresDialect) outcomeOf(err error, committing bool) outcome {
	var dbErr *pgconn.PgError
	if errors.Is(err, errConflict) {
		return retryable
	}
	if !errors.As(err, &dbErr) {
		if committing {
			return unknownOutcome
		}
		return unreachable
	}
	if (dbErr.Code == "26000" || dbErr.Code == "42P05") && d.plainly != nil {
		d.plainly.Store(true) // the prepared statement is on another connection
		return retryable
	}
	switch {
	case dbErr.Code == "22012", dbErr.Code == "40001", dbErr.Code == "40P01", dbErr.Code == "23505", dbErr.Code == "21000",
		dbErr.Code == "0A000":
		return retryable // a wrong count, or a conflict that Postgres found
	case dbErr.Code == "55P03":
		return lockTimeout
	case dbErr.SeverityUnlocalized == "FATAL" && committing:
		return unknownOutcome
	case strings.HasPrefix(dbErr.Code, "57"), strings.HasPrefix(dbErr.Code, "08"), strings.HasPrefix(dbErr.Code, "53"),
		dbErr.SeverityUnlocalized == "FATAL",
		dbErr.Code == "25P03", dbErr.Code == "25006":
		return unreachable
	}
	return fatal
}

// begin implements dialect. The settings hold until the commit, so any connection will do. They
// keep the planner from reading small or new tables whole. No statement has a timeout, above all
// not the commit: it may wait for a synchronous replica, and would not if it were cancelled.
func (d postgresDialect) begin(p patience) []statement {
	return []statement{
		{text: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"},
		{text: `SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout',
			$2, true),
			set_config('statement_timeout', '0', true), set_config('enable_seqscan',
			'off', true), set_config('enable_hashjoin', 'off', true),
			set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan',
			'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`,
			args: []any{milliseconds(p.latch), milliseconds(p.idle)}},
	}
}

// snapshot implements dialect.
func (d postgresDialect) snapshot() []statement {
	return []statement{{text: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// commit implements dialect.
func (d postgresDialect) commit() statement { return statement{text: "COMMIT"} }

// rollback implements dialect.
func (d postgresDialect) rollback() statement { return statement{text: "ROLLBACK"} }

// latch implements dialect with advisory locks that end with the transaction. Two paths with the
// same number only wait for each other without need.
func (d postgresDialect) latch(all []latch) []statement {
	if len(all) == 0 {
		return nil
	}
	numbers := make(map[int64]bool, len(all))
	for _, l := range all {
		n := d.number(l.path)
		numbers[n] = numbers[n] || l.exclusive
	}
	keys := make([]int64, 0, len(numbers))
	for n := range numbers { // order does not matter: sorted below
		keys = append(keys, n)
	}
	slices.Sort(keys) // all transactions take them in one order, so that there are no deadlocks
	exclusive := make([]bool, len(keys))
	for i, n := range keys {
		exclusive[i] = numbers[n]
	}
	return []statement{{
		text: `SELECT CASE WHEN x THEN pg_advisory_xact_lock(n) ELSE pg_advisory_xact_lock_shared(n) END
			FROM unnest($1::bigint[], $2::boolean[]) AS latches(n, x)`,
		args: []any{keys, exclusive},
	}}
}

// number returns the number of the advisory lock of a path.
func (d postgresDialect) number(path lockkeeper.Path) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "lockkeeper %s %s", d.prefix, path)
	return int64(h.Sum64())
}

// clock implements dialect.
func (d postgresDialect) clock(to *reading, blocks int) []statement {
	const micros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	const watched = `EXISTS (SELECT FROM {watchers} f WHERE f.until_ns > c.micros * 1000)`
	text, args := `SELECT `+micros+`, 0, 0, false`, []any(nil)
	switch {
	case blocks == 1:
		text = d.sql(`SELECT c.micros, c.n, c.n, ` + watched + `
			FROM (SELECT ` + micros + `, nextval('{sequences}')) AS c (micros, n)`)
	case blocks > 1: // another transaction may draw between two of them
		text = d.sql(`SELECT c.micros, drawn.first, drawn.last, ` + watched + ` FROM (SELECT ` + micros + `) AS c (micros),
			(SELECT min(b.n), max(b.n) FROM (SELECT nextval('{sequences}') FROM generate_series(1, $1)) AS b (n))
			AS drawn (first, last)`)
		args = []any{blocks}
	}
	return []statement{{text: text, args: args, each: func(scan scanner) error {
		var micros, n, last int64
		err := scan(&micros, &n, &last, &to.watched)
		to.now, to.numbers, to.last = time.Duration(micros)*time.Microsecond, uint64(n), uint64(last)
		return err
	}}}
}

// drawn implements dialect.
func (d postgresDialect) drawn(to *uint64) statement {
	return statement{text: d.sql(`SELECT coalesce(pg_sequence_last_value('{sequences}'::regclass), 0)`),
		each: numberReader(to)}
}

// sessions implements dialect.
func (d postgresDialect) sessions(ids []string, lock bool, each func(*session)) statement {
	text := `SELECT ` + rows.SessionColumns + `, process, attempt, version FROM {sessions}`
	if ids == nil {
		return statement{text: d.sql(text + ` WHERE state = 'open'`), each: sessionReader(each)}
	}
	text += ` WHERE id = ANY($1)`
	if lock {
		text += ` ORDER BY id FOR UPDATE`
	}
	return statement{text: d.sql(text), args: []any{ids}, each: sessionReader(each)}
}

// claims implements dialect.
func (d postgresDialect) claims(s *search, each func(region int, c *rows.Claim)) statement {
	a := &arms{naming: d.naming}
	d.byName(a, s)
	d.bySession(a, s)
	d.byRegion(a, s)
	// OFFSET 0 keeps the planner from beginning with all claims, here and below.
	text := `WITH f (region, session, id) AS (` + strings.Join(a.texts, "\nUNION ALL ") + `)
		SELECT ` + claimColumns("c") + `, f.region FROM f CROSS JOIN LATERAL (SELECT * FROM {claims} o
			WHERE o.session = f.session AND o.id = f.id OFFSET 0) c`
	if s.deep {
		text += ` UNION ALL SELECT ` + claimColumns("c") +
			`, -2 FROM (SELECT DISTINCT session, id FROM f WHERE region >= 0) n CROSS JOIN LATERAL (
			SELECT * FROM {claims} i WHERE i.inside_session = n.session AND i.inside_id = n.id
			AND i.state IN ('waiting', 'converting', 'held') OFFSET 0) c`
	}
	return statement{text: d.sql(text), args: a.args, each: claimReader(each)}
}

// arms are the parts of a query, and its arguments.
type arms struct {
	naming
	texts []string
	args  []any
}

// add adds a part, in which each ? stands for an argument.
func (a *arms) add(text string, args ...any) {
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(text, "?")
		a.args = append(a.args, arg)
		b.WriteString(before + "$" + strconv.Itoa(len(a.args)))
		text = after
	}
	a.texts = append(a.texts, b.String()+text)
}

func (d postgresDialect) byName(a *arms, s *search) {
	if len(s.refs) > 0 {
		sessions, ids := refColumns(s.refs)
		a.add(`SELECT -1, n.session, n.id FROM unnest(?::text[], ?::bigint[]) AS n(session, id)`, sessions, ids)
	}
	if len(s.inside) > 0 {
		sessions, ids := refColumns(s.inside)
		a.add(`SELECT -1, i.session, i.id FROM unnest(?::text[], ?::bigint[]) AS n(session, id) CROSS JOIN LATERAL (
			SELECT * FROM {claims} o WHERE o.inside_session = n.session AND o.inside_id = n.id
			AND o.state IN ('waiting', 'converting', 'held') OFFSET 0) i`, sessions, ids)
	}
}

func refColumns(refs []lockkeeper.Ref) (sessions []string, ids []int64) {
	for _, r := range refs {
		sessions, ids = append(sessions, r.Session), append(ids, int64(r.ID))
	}
	return sessions, ids
}

func (d postgresDialect) bySession(a *arms, s *search) {
	if len(s.sessions) > 0 {
		a.add(`SELECT -1, e.session, e.id FROM {claims} e WHERE e.session = ANY(?)`, s.sessions)
	}
	if len(s.renewed) > 0 {
		a.add(`SELECT -1, r.session, r.id FROM {sessions} s CROSS JOIN LATERAL (SELECT * FROM {claims} o
			WHERE o.session = s.id AND (
			o.state IN ('waiting',
			'converting') OR o.notified_ns IS NOT NULL OR o.more <> '' OR o.changed_ns >= ? - s.ttl_ns)
			AND (o.state <> 'ended' OR o.forget_ns > ?) OFFSET 0) r
			WHERE s.id = ANY(?)`, int64(s.now), int64(s.now), s.renewed)
	}
	if s.everyone {
		a.add(`SELECT -1, session, id FROM {claims} WHERE state <> 'ended'`)
	}
	if s.ended {
		a.add(`SELECT -1, session, id FROM {claims} WHERE state = 'ended' AND ended_ns > ?`, int64(s.since))
	}
}

// byRegion reads the claims that meet targets. Mostly there are few, and one query reads all; it
// reads each long queue in its order, by the primary key.
func (d postgresDialect) byRegion(a *arms, s *search) {
	of := map[part]*regionColumns{at: {}, above: {}, below: {}}
	for i, r := range s.regions {
		c := of[r.part]
		c.n, c.low, c.high = append(c.n, int64(i)), append(c.low, string(r.path)), append(c.high, "")
		if r.part == below {
			c.low[len(c.low)-1], c.high[len(c.high)-1] = r.span()
		}
	}
	const from = `unnest(?::bigint[], ?::text[], ?::text[]) AS r(n, low, high)`
	// A claim that was removed by hand must not count.
	const there = ` JOIN {claims} k ON k.session = t.session AND k.id = t.id`
	where := map[part]string{
		at:    `t.path = r.low`,
		above: `t.path = r.low AND t.mode < 3`,
		below: `t.path >= r.low AND t.path < r.high`,
	}
	for _, p := range []part{at, above, below} {
		c := of[p]
		switch {
		case len(c.n) == 0:
		case s.limit == 0:
			a.add(`(SELECT r.n, l.session, l.id FROM `+from+` CROSS JOIN LATERAL (SELECT t.session, t.id
				FROM {targets} t`+there+
				` WHERE `+where[p]+` OFFSET 0) l`+s.atMost()+`)`,
				c.n, c.low, c.high)
		default:
			one := func(join, and string) string {
				return `SELECT r.n, l.session, l.id FROM ` + from + ` CROSS JOIN LATERAL (SELECT t.session, t.id
					FROM {targets} t` +
					join + ` WHERE ` + where[p] + and + `) l`
			}
			a.add(one(there, ` AND t.class <= 1 OFFSET 0`), c.n, c.low, c.high)
			a.add(one(there, ` AND t.class = 4 OFFSET 0`), c.n, c.low, c.high)
			// With a join here, which an EXISTS without OFFSET may become, the planner might read the
			// whole queue.
			const is = ` AND EXISTS (SELECT FROM {claims} k WHERE k.session = t.session AND k.id = t.id OFFSET 0)`
			a.add(one("", ` AND t.class >= 2 AND t.class <= 3`+is+` ORDER BY t.class, t.rank, t.ticket,
				t.session, t.id LIMIT `+
				strconv.Itoa(s.limit)), c.n, c.low, c.high)
		}
	}
}

// atMost bounds the rows read of the regions of one kind.
func (s *search) atMost() string {
	if s.most == 0 {
		return ""
	}
	return ` LIMIT ` + strconv.Itoa(s.most)
}

type regionColumns struct {
	n         []int64
	low, high []string
}

// freezes implements dialect. There are at most table.MaxFreezes, mostly none.
func (d postgresDialect) freezes(each func(table.FreezeRecord)) statement {
	return statement{text: d.sql(`SELECT ` + rows.FreezeColumns + ` FROM {freezes}`), each: freezeReader(each)}
}

// holdTimes implements dialect.
func (d postgresDialect) holdTimes(paths []lockkeeper.Path, each func(table.HoldTimeRecord)) statement {
	text, args := `SELECT `+rows.HoldTimeColumns+` FROM {hold_times}`, []any(nil)
	if paths != nil {
		text, args = text+` WHERE path = ANY($1)`, []any{plainPaths(paths)}
	}
	return statement{text: d.sql(text), args: args, each: holdTimeReader(each)}
}

func plainPaths(paths []lockkeeper.Path) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = string(p)
	}
	return all
}
