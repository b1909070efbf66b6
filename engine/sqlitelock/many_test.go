package sqlitelock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
)

// crowded makes a file with that many claims, held by sessions of 100 claims each.
func crowded(t testing.TB, path, driver string, claims int) (*Engine, lockkeeper.Key) {
	t.Helper()
	e, err := openHere(path, options{careless: true, driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	var wg sync.WaitGroup
	for s := range (claims + 99) / 100 {
		wg.Go(func() {
			lease, err := e.Attach(bounded(t), lockkeeper.Session{ID: fmt.Sprint("s", s), TTL: time.Hour}, nil)
			for i := range min(100, claims-100*s) {
				if err == nil {
					_, err = e.Claim(bounded(t), lease.Key, exclusive(uint64(i+1), lockkeeper.Path(fmt.Sprintf("many/%d/%d", s, i))))
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lease, err := e.Attach(bounded(t), lockkeeper.Session{ID: "one", TTL: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e, lease.Key
}

// The work of a call does not grow with the number of other claims: it runs the same statements,
// each of which finds its rows by an index, in its own process and in a process that reads the
// changes.
func TestWorkDoesNotGrow(t *testing.T) {
	work := func(claims int) []string {
		var mu sync.Mutex
		var statements []string
		watching := false
		driver := registerFaults(func(before bool, statement string) error {
			mu.Lock()
			defer mu.Unlock()
			if watching && before {
				first, _, _ := strings.Cut(statement, "(")
				statements = append(statements, strings.TrimSpace(first))
			}
			return nil
		})
		path := file(t)
		e, k := crowded(t, path, driver, claims)
		other, err := openHere(path, options{careless: true, driver: driver})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		l := attach(t, other, "two", time.Hour, nil)
		mu.Lock()
		watching = true
		mu.Unlock()
		if st := claim(t, e, k, exclusive(1, "db/a")); st.State != lockkeeper.Held {
			t.Fatal(st.State)
		}
		claim(t, other, l, exclusive(1, "db/b"))
		if err := e.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(statements)
	}
	most := testmode.Pick(500, 2000)
	few, many := work(10), work(most)
	if !slices.Equal(few, many) {
		t.Errorf("beside 10 claims:\n%s\nbeside %d:\n%s", strings.Join(few, "\n"), most, strings.Join(many, "\n"))
	}
}

// Rows are found by an index, each of them that is written, and those that are new.
func TestRowsAreFoundByIndex(t *testing.T) {
	e := openReal(t, file(t))
	scans := map[statement]string{
		readMeta: "meta", updateMeta: "meta", // which has one row
		readNeeded: "all", // when a file is opened
		// once a minute
		oldestKnown: "all", purgeClaims: "all", purgeSessions: "all", purgeFreezes: "all", trimHoldTimes: "all",
	}
	err := e.call(bounded(t), true, func(*transaction) {
		for s, text := range statementTexts() {
			if word, _, _ := strings.Cut(text, " "); word == "BEGIN" || word == "COMMIT" || word == "ROLLBACK" {
				continue
			}
			args := make([]any, strings.Count(text, "?"))
			rows, err := e.db.conn.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+text, args...)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			for rows.Next() {
				var a, b, c int
				var plan string
				if err := rows.Scan(&a, &b, &c, &plan); err != nil {
					t.Error(err)
				}
				if strings.HasPrefix(plan, "SCAN") && plan != "SCAN CONSTANT ROW" && scans[statement(s)] == "" {
					t.Errorf("%s\nlooks at all rows: %s", text, plan)
				}
			}
			rows.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Who opens a file reads the ended claims of sessions that are open, whose ids must not begin again, and
// not those of sessions that have left.
func TestOpeningReadsNoEndsOfClosedSessions(t *testing.T) {
	path := file(t)
	a := openReal(t, path)
	stays := attach(t, a, "stays", time.Minute, nil)
	for id := range uint64(3) {
		leaves := attach(t, a, fmt.Sprint("leaves", id), time.Minute, nil)
		claim(t, a, leaves, exclusive(1, "db"))
		if err := a.End(bounded(t), leaves, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		claim(t, a, stays, exclusive(id+1, "db"))
		if err := a.End(bounded(t), stays, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id + 1}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(ends bool) (sessions []string) {
		err := a.call(bounded(t), true, func(tx *transaction) {
			all, err := a.db.changedSince(0, ends)
			if err != nil {
				t.Error(err)
			}
			for i := range all.claims {
				sessions = append(sessions, all.claims[i].Ref.Session)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return sessions
	}
	if all := read(true); len(all) != 6 {
		t.Errorf("%d claims are in the rows, want 6: %q", len(all), all)
	}
	needed := read(false)
	if len(needed) != 3 || slices.ContainsFunc(needed, func(session string) bool { return session != "stays" }) {
		t.Errorf("claims of %q are read, want three of the open session", needed)
	}
	b := openReal(t, path)
	compare(t, "another process", snapshot(t, b), snapshot(t, a))
}

// BenchmarkBeside is a claim and its release beside many others, and
// BenchmarkOpen the opening of a file with that many.
func BenchmarkBeside(b *testing.B) {
	for _, claims := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(claims), func(b *testing.B) {
			e, k := crowded(b, file(b), "", claims)
			id := uint64(0)
			for b.Loop() {
				id++
				if _, err := e.Claim(context.Background(), k, exclusive(id, "db/a")); err != nil {
					b.Fatal(err)
				}
				if err := e.End(context.Background(), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, claims := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(claims), func(b *testing.B) {
			path := file(b)
			crowded(b, path, "", claims)
			for b.Loop() {
				e, err := openHere(path, options{careless: true})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				e.Close()
				b.StartTimer()
			}
		})
	}
}
