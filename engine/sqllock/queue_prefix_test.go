package sqllock

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// lineLength is how many claims wait in a long queue.
const lineLength = 10_000

// lengthen adds that many waiting claims behind the last claim of a session: copies of its rows,
// with rising tickets.
func lengthen(t *testing.T, db database, session string, more int) {
	t.Helper()
	digits := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL " +
		"SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	var from []string
	for _, name := range []string{"u", "v", "w", "x", "y"} {
		from = append(from, digits+" AS "+name)
	}
	n := "(u.d + 10 * v.d + 100 * w.d + 1000 * x.d + 10000 * y.d)"
	tables := " FROM {%s} AS c CROSS JOIN " + strings.Join(from, " CROSS JOIN ") + " WHERE c.session = '" + session +
		"' AND c.id = 1 AND " + n + " BETWEEN 1 AND " + strconv.Itoa(more)
	for table, columns := range map[string]string{
		"claims": "state, targets, who, note, link, priority, fence, reason, arrived_ns, granted_ns, wait_ns, bound_ns, " +
			"notified_ns, ended_ns, forget_ns, unacked_ns, change_no, changed_ns, more",
		"targets": "path, class, mode, " + map[flavour]string{postgres: `rank`, mysql: "`rank`"}[db.flavour],
	} {
		all := "c." + strings.ReplaceAll(columns, ", ", ", c.")
		db.mustExec(t, "INSERT INTO {"+table+"} (session, id, ticket, "+columns+") SELECT c.session, c.id + "+n+
			", c.ticket + "+n+", "+all+fmt.Sprintf(tables, table))
	}
}

// rowsRead is how many rows the database has read in our tables for anybody. In Postgres a
// connection may report its reads only when it ends, so the test ends the others.
func rowsRead(t *testing.T, db database) int {
	t.Helper()
	read := 0
	if db.flavour == postgres {
		db.mustExec(t, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() "+
			"AND pid <> pg_backend_pid()")
	}
	query := "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables"
	if db.flavour == mysql {
		query = "SELECT sum(variable_value) FROM information_schema.global_status WHERE variable_name LIKE 'HANDLER_READ%'"
	}
	if err := db.pool.QueryRow(query).Scan(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

// A release with a queue of thousands grants the next claim, and reads little more than with a
// queue of ten.
func TestLongQueue(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		s := k.own(t) // its counters are for all of it
		cost := make(map[int]int)
		const releases = 5
		for _, length := range []int{10, lineLength} {
			url := s.Database(t)
			db := opened(t, url)
			holder, first := join(t, openEngine(t, url), "holder", cutTTL), join(t, openEngine(t, url), "first", cutTTL)
			holder.claim(exclusive(1, 0, "a/b"), lockkeeper.Held)
			first.claim(exclusive(1, lockkeeper.Forever, "a/b"), lockkeeper.Waiting)
			lengthen(t, opened(t, url), "first", length-1)
			for _, m := range []*member{holder, first} { // what they would read at the side is not the cost of a release
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
			}
			before := rowsRead(t, db)
			e := openEngine(t, url)
			began := time.Now()
			if err := e.End(bounded(t), holder.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
				t.Fatal(err)
			}
			for id := uint64(1); id < releases; id++ {
				if err := e.End(bounded(t), first.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			took := time.Since(began)
			cost[length] = (rowsRead(t, db) - before) / releases
			t.Logf("of %d waiting: %d rows read by a release, which takes %s", length, cost[length], took/releases)
			held := listedHeld(t, db)
			if len(held) != 1 || held[0] != fmt.Sprintf("first.%d", releases) {
				t.Errorf("after %d releases it is held by %v", releases, held)
			}
		}
		// A process that does not know the queue reads a part of it once, to find that it is long,
		// before it reads its prefix: the targets and the claims, in Postgres twice.
		if few, many := cost[10], cost[lineLength]; many > 10*few+3*usual.mostClaims/releases {
			t.Errorf("a release reads %d rows if ten wait, and %d if %d wait", few, many, lineLength)
		}
	})
}

// The same holds in a process that knows a waiter in the queue: it reads the claims nested in the
// claims that it finds at once, and no others.
func TestLongQueueOfOtherProcesses(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		url := k.own(t).Database(t) // its counters are for all of it
		db, e := opened(t, url), openEngine(t, url)
		holder, first := join(t, e, "holder", cutTTL), join(t, e, "first", cutTTL)
		holder.claim(exclusive(1, 0, "a/b"), lockkeeper.Held)
		first.claim(exclusive(1, lockkeeper.Forever, "a/b"), lockkeeper.Waiting)
		lengthen(t, db, "first", lineLength)
		before := rowsRead(t, db)
		holder.release(1)
		if read := rowsRead(t, db) - before; read > lineLength {
			t.Errorf("a release reads %d rows if %d wait", read, lineLength)
		}
	})
}

// listedHeld are the claims that the database shows as held.
func listedHeld(t *testing.T, db database) (all []string) {
	t.Helper()
	rows, err := db.pool.Query(db.sql("SELECT session, claim FROM {held}"))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var session string
		var claim int
		if err := rows.Scan(&session, &claim); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s.%d", session, claim))
	}
	return all
}
