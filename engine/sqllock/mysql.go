package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// mysqlDialect speaks to MariaDB and MySQL, in SQL that both understand. It sends many statements
// in one packet, with their values written into them, so that a transaction takes two round trips.
//
// Statements that lock rows force the server to find them by their keys, see byKey: it would read
// small tables whole, and wait for every row that another transaction has locked.
type mysqlDialect struct{ naming }

// mysqlLink is a connection of the pool.
type mysqlLink struct{ conn *sql.Conn }

// with implements dialect.
func (d mysqlDialect) with(ctx context.Context, pool *sql.DB, do func(link) error) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = do(mysqlLink{conn})
	if err == nil {
		return nil
	}
	if _, failed := conn.ExecContext(ctx, d.rollback().text); failed != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it is not used again
	}
	return err
}

// packetSize is roughly how many bytes are sent at once. Servers take 16 MB and more, unless
// configured otherwise.
const packetSize = 512 << 10

// send implements link. The server stops at the first statement of a packet that fails.
func (l mysqlLink) send(ctx context.Context, all []statement) error {
	for len(all) > 0 {
		n, size := 1, all[0].size()
		for n < len(all) && size+all[n].size() <= packetSize {
			size += all[n].size()
			n++
		}
		if err := l.packet(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// size is roughly the length of s in a packet.
func (s *statement) size() int {
	size := len(s.text)
	for _, arg := range s.args {
		size += 20
		if text, ok := arg.(string); ok {
			size += len(text)
		}
	}
	return size
}

var errMissingAnswers = errors.New("the database answered fewer statements than it was sent")

// packet sends statements at once. The statements with a reader are those that answer with rows.
func (l mysqlLink) packet(ctx context.Context, all []statement) error {
	texts := make([]string, 0, len(all))
	var args []any
	var readers []func(scanner) error
	for _, s := range all {
		texts, args = append(texts, s.text), append(args, s.args...)
		if s.each != nil {
			readers = append(readers, s.each)
		}
	}
	found, err := l.conn.QueryContext(ctx, strings.Join(texts, ";\n"), args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for i, each := range readers {
		if i > 0 && !found.NextResultSet() {
			return errors.Join(found.Err(), errMissingAnswers)
		}
		for found.Next() {
			if err := each(found.Scan); err != nil {
				return err
			}
		}
		if err := found.Err(); err != nil {
			return err
		}
	}
	found.NextResultSet() // there is none, but perhaps an error of a later statement
	return errors.Join(found.Err(), found.Close())
}

// outcomeOf implements dialect.
func (d mysqlDialect) outcomeOf(err error, committing bool) outcome {
	switch {
	case errors.Is(err, errConflict):
		return retryable
	case errors.Is(err, errBroken):
		return fatal
	}
	var dbErr *mysqldriver.MySQLError
	if errors.As(err, &dbErr) {
		switch dbErr.Number {
		case 1213, 1062, 1242, 1020: // a deadlock, an existing row, see hold, and a row that has changed
			return retryable
		case 1205, 1969, 3024, 3572: // another transaction keeps a lock, see patiently
			return lockTimeout
		case 1044, 1045, 1046, 1049, 1054, 1064, 1142, 1143, 1146, 1153, 1265, 1366, 1406, 1665, 4025:
			// rights, tables, values
			return fatal
		}
	}
	// All others: the server is stopped, full, read-only, or can't be reached.
	if committing {
		return unknownOutcome
	}
	return unreachable
}

// begin implements dialect. For the patience see patiently. The server closes the connection of an
// idle transaction; it counts in whole seconds.
func (d mysqlDialect) begin(p patience) []statement {
	idle := int64(math.Ceil(p.idle.Seconds()))
	return []statement{
		{text: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"},
		{text: fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = 1, wait_timeout = %d, net_write_timeout = %d", idle,
			idle)},
		{text: "START TRANSACTION READ WRITE"},
	}
}

// asBefore undoes the settings of begin.
const asBefore = "SET SESSION innodb_lock_wait_timeout = DEFAULT, wait_timeout = DEFAULT, net_write_timeout = DEFAULT"

// snapshot implements dialect.
func (d mysqlDialect) snapshot() []statement {
	return []statement{{text: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"},
		{text: "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"}}
}

// commit implements dialect.
func (d mysqlDialect) commit() statement { return statement{text: "COMMIT;\n" + asBefore} }

// rollback implements dialect.
func (d mysqlDialect) rollback() statement { return statement{text: "ROLLBACK;\n" + asBefore} }

// patiently returns a SELECT that fails when it has waited for locks for latchPatience. Servers
// count lock timeouts in whole seconds, but can bound the time of a statement more finely: MariaDB
// by a clause that MySQL takes for a comment, MySQL by a hint that MariaDB takes for one.
func patiently(then string) string {
	return fmt.Sprintf("/*M! SET STATEMENT max_statement_time = %.3f FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */ ",
		latchPatience.Seconds(), latchPatience.Milliseconds()) + then
}

// stripes is the number of rows that stand for paths, besides the row of the root.
const stripes = 4096

// stripe is a row that stands for paths.
type stripe struct {
	depth     int // the least depth of its paths
	row       int64
	exclusive bool
}

// latch implements dialect with rows that are locked until the transaction ends. Two paths that
// share a row only wait for each other without need.
//
// All transactions take them in one order, so that there are no deadlocks: first the ancestors,
// which are mostly shared, and so need one statement. If paths of different depths share a row,
// there may be a deadlock after all, and the server breaks it.
func (d mysqlDialect) latch(all []latch) (statements []statement) {
	of := make(map[int64]stripe, len(all))
	for _, l := range all {
		row, depth := d.row(l.path), 1+strings.Count(string(l.path), "/")
		s, known := of[row]
		if !known || depth < s.depth {
			s.depth = depth
		}
		s.row, s.exclusive = row, s.exclusive || l.exclusive
		of[row] = s
	}
	order := slices.SortedFunc(maps.Values(of), func(a, b stripe) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.row, b.row))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].depth == order[0].depth && order[n].exclusive == order[0].exclusive {
			n++
		}
		statements = append(statements, d.latchRows(order[:n]))
		order = order[n:]
	}
	return statements
}

// row is the number of the row of a path.
func (d mysqlDialect) row(path lockkeeper.Path) int64 {
	if path == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(path))
	return 1 + int64(h.Sum64()%stripes)
}

// latchRows locks rows in their order. It fails if one is missing, since that would lock nothing.
func (d mysqlDialect) latchRows(all []stripe) statement {
	mode := " LOCK IN SHARE MODE"
	if all[0].exclusive {
		mode = " FOR UPDATE"
	}
	keys := make([][]any, len(all))
	for i, s := range all {
		keys[i] = []any{s.row}
	}
	from, args := d.byKey("latches", columns{"n", []string{"n"}}, keys)
	return statement{text: patiently("count(*) FROM " + from + mode), args: args, each: func(scan scanner) error {
		locked := 0
		if err := scan(&locked); err != nil {
			return err
		}
		if locked != len(all) {
			return fmt.Errorf("%w: %s has lost rows from 0 to %d", errBroken, d.name("latches"), stripes)
		}
		return nil
	}}
}

// byKey finds rows t of a table by a unique key: it returns the text behind FROM, and its
// arguments. The server reads the rows one by one in the order of keys.
func (d mysqlDialect) byKey(in string, key columns, keys [][]any) (from string, args []any) {
	var types, equal []string
	for i, name := range key.but() {
		kind, value := "VARCHAR(512) CHARACTER SET utf8mb4", fmt.Sprint("k.k", i)
		if slices.Contains(key.numbers, name) {
			kind = "BIGINT"
		}
		types = append(types, fmt.Sprintf("k%d %s PATH '$[%d]'", i, kind, i))
		if len(keys) == 1 {
			value = "?"
		}
		equal = append(equal, "t.`"+name+"` = "+value)
	}
	from = d.sql("{" + in + "} t FORCE INDEX (PRIMARY)")
	if len(keys) == 1 {
		return from + " WHERE " + strings.Join(equal, " AND "), keys[0]
	}
	list, _ := json.Marshal(keys) // they are strings and int64
	return "JSON_TABLE(?, '$[*]' COLUMNS (" + strings.Join(types, ", ") + ")) k STRAIGHT_JOIN " + from + " ON " +
		strings.Join(equal, " AND "), []any{string(list)}
}

// errBroken: the tables are not as the migrations made them.
var errBroken = errors.New("the tables are damaged")

// marks returns n question marks.
func marks(n int) string { return repeat("?", n) }

// repeat returns a list of n times text.
func repeat(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ")
}

func anys[T any](all []T) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = v
	}
	return out
}

// clock implements dialect. The time is the begin of the statement, which is after the latches, and
// has no time zone.
func (d mysqlDialect) clock(to *reading, blocks int) []statement {
	var all []statement
	const micros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	then := "0, 0"
	if blocks > 0 { // the rows of one statement get numbers that follow each other
		rows := strings.Repeat(", ()", blocks-1)
		all = append(all, statement{text: d.sql("INSERT INTO {sequences} () VALUES ()" + rows)})
		then = d.sql("last_insert_id() * 1024, EXISTS (SELECT 1 FROM {watchers} f WHERE f.until_ns > " + micros + " * 1000)")
	}
	return append(all, statement{
		text: "SELECT " + micros + ", " + then,
		each: func(scan scanner) error {
			var micros, n int64
			err := scan(&micros, &n, &to.watched)
			to.now, to.numbers = time.Duration(micros)*time.Microsecond, uint64(n)
			to.last = to.numbers + uint64(max(blocks-1, 0))*numbersAtOnce
			return err
		},
	})
}

// drawn implements dialect.
func (d mysqlDialect) drawn(to *uint64) statement {
	return statement{text: d.sql("SELECT coalesce(max(n), 0) FROM {sequences}"), each: numberReader(to)}
}

// sessions implements dialect.
func (d mysqlDialect) sessions(ids []string, lock bool, each func(*session)) statement {
	text, args := `SELECT `+sessionColumns.names+` FROM {sessions}`, anys(ids)
	switch {
	case ids == nil:
		text += ` WHERE state = 'open'`
	case lock:
		var keys [][]any
		for _, id := range ids {
			keys = append(keys, []any{id})
		}
		from, found := d.byKey("sessions", columns{"id", nil}, keys)
		text, args = patiently(sessionColumns.names+" FROM "+from+" FOR UPDATE"), found
	default:
		text += ` WHERE id IN (` + marks(len(ids)) + `)`
	}
	return statement{text: d.sql(text), args: args, each: sessionReader(each)}
}

// claims implements dialect. The parts of the query are not sorted or compared, so rows come as
// they are found.
func (d mysqlDialect) claims(s *search, each func(region int, c *rows.Claim)) statement {
	q := &union{}
	q.byName(s)
	q.bySession(s)
	q.byRegion(s)
	return statement{text: d.sql(strings.Join(q.texts, "\nUNION ALL ")), args: q.args, each: claimReader(each)}
}

// union is the parts of a query for claims, and its arguments.
type union struct {
	texts []string
	args  []any
}

func (q *union) add(region, from string, args ...any) {
	q.texts = append(q.texts, "(SELECT STRAIGHT_JOIN "+claimColumns("c")+", "+region+" FROM "+from+")")
	q.args = append(q.args, args...)
}

func (q *union) byName(s *search) {
	if len(s.refs) > 0 {
		q.add("-1", `{claims} c FORCE INDEX (PRIMARY) WHERE (c.session, c.id) IN (`+repeat("(?, ?)", len(s.refs))+`)`,
			refValues(s.refs)...)
	}
	if len(s.inside) > 0 {
		q.add("-1", `{claims} c FORCE INDEX (claims_inside) WHERE (c.inside_session, c.inside_id) IN (`+
			repeat("(?, ?)", len(s.inside))+
			`) AND c.state IN ('waiting', 'converting', 'held')`, refValues(s.inside)...)
	}
}

func refValues(refs []lockkeeper.Ref) []any {
	var all []any
	for _, r := range refs {
		all = append(all, r.Session, int64(r.ID))
	}
	return all
}

func (q *union) bySession(s *search) {
	if n := len(s.sessions); n > 0 {
		q.add("-1", `{claims} c FORCE INDEX (PRIMARY) WHERE c.session IN (`+marks(n)+`)`, anys(s.sessions)...)
	}
	if n := len(s.renewed); n > 0 {
		q.add("-1",
			`{sessions} s FORCE INDEX (PRIMARY) JOIN {claims} c FORCE INDEX (PRIMARY) ON c.session = s.id
				WHERE s.id IN (`+
				marks(n)+`) AND (
			c.state IN ('waiting',
			'converting') OR c.notified_ns IS NOT NULL OR c.more <> '' OR c.changed_ns >= ? - s.ttl_ns)
			AND (c.state <> 'ended' OR c.forget_ns > ?)`,
			append(anys(s.renewed), int64(s.now), int64(s.now))...)
	}
	if s.everyone {
		q.add("-1", `{claims} c WHERE c.state IN ('waiting', 'converting', 'held')`)
	}
	if s.ended {
		q.add("-1", `{claims} c WHERE c.state = 'ended' AND c.ended_ns > ?`, int64(s.since))
	}
}

// byRegion reads the claims that meet targets. Mostly there are few, and one query reads all; it
// reads each long queue in its order, by the primary key.
func (q *union) byRegion(s *search) {
	if len(s.regions) == 0 {
		return
	}
	const from = `{targets} t FORCE INDEX (PRIMARY)`
	const join = ` JOIN {claims} c FORCE INDEX (PRIMARY) ON c.session = t.session AND c.id = t.id`
	where, args := meetings(s.regions)
	if s.limit == 0 {
		q.add("0", from+join+` WHERE `+where+s.atMost(), args...)
		// if the limit is reached, everything is read again
		q.deep(s, `(SELECT t.session, t.id FROM `+from+` WHERE `+where+s.atMost()+`)`, args)
		return
	}
	queues := []string{`SELECT 0 AS region, t.session, t.id FROM ` + from + ` WHERE (` + where +
		`) AND t.class IN (0, 1, 4)`}
	for i, r := range s.regions {
		where, values := meetings([]region{r})
		// A claim that was removed by hand must not count, so the same query looks for it.
		queues = append(queues, fmt.Sprintf("(SELECT STRAIGHT_JOIN %d, t.session, t.id FROM %s%s WHERE %s AND t.class IN "+
			"(2, 3) ORDER BY t.class, t.`rank`, t.ticket, t.session, t.id LIMIT %d)",
			i, from, join, where, s.limit))
		args = append(args, values...)
	}
	found := "(" + strings.Join(queues, " UNION ALL ") + ")"
	q.add("t.region", found+" t"+join, args...)
	q.deep(s, found, args)
}

// deep reads the claims nested in those found.
func (q *union) deep(s *search, found string, args []any) {
	if s.deep {
		q.add("-2", `(SELECT DISTINCT t.session, t.id FROM `+found+` t) t JOIN {claims} c FORCE INDEX (claims_inside)
			ON c.inside_session = t.session AND c.inside_id = t.id WHERE c.state IN ('waiting',
			'converting', 'held')`, args...)
	}
}

// meetings returns the condition for the rows of targets in regions, and its arguments.
func meetings(regions []region) (where string, args []any) {
	var each []string
	for _, r := range regions {
		switch r.part {
		case at:
			each, args = append(each, `t.path = ?`), append(args, string(r.path))
		case above:
			each, args = append(each, `t.path = ? AND t.mode < 3`), append(args, string(r.path))
		case below:
			low, high := r.span()
			each, args = append(each, `t.path >= ? AND t.path < ?`), append(args, low, high)
		}
	}
	return strings.Join(each, ` OR `), args
}

// freezes implements dialect. There are at most table.MaxFreezes, mostly none.
func (d mysqlDialect) freezes(each func(table.FreezeRecord)) statement {
	return statement{text: d.sql(`SELECT ` + rows.FreezeColumns + ` FROM {freezes}`), each: freezeReader(each)}
}

// holdTimes implements dialect.
func (d mysqlDialect) holdTimes(paths []lockkeeper.Path, each func(table.HoldTimeRecord)) statement {
	text := `SELECT ` + rows.HoldTimeColumns + ` FROM {hold_times}`
	if paths != nil {
		text += ` WHERE path IN (` + marks(len(paths)) + `)`
	}
	return statement{text: d.sql(text), args: anys(plainPaths(paths)), each: holdTimeReader(each)}
}
