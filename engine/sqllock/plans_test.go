package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"

	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// watched is a dialect that passes the statements of every transaction with latches to a function,
// one round trip at a time, and sends the statements that it returns.
type watched struct {
	dialect
	watch func() (send func(all []statement) []statement) // called for each transaction
}

func (w *watched) with(ctx context.Context, pool *sql.DB, do func(link) error) error {
	return w.dialect.with(ctx, pool, func(l link) error { return do(&watchedLink{link: l, w: w}) })
}

type watchedLink struct {
	link
	w   *watched
	see func(all []statement) []statement
}

func (l *watchedLink) send(ctx context.Context, all []statement) error {
	if all[0].text == l.w.begin(patience{})[0].text {
		l.see = l.w.watch()
	}
	if l.see != nil {
		all = l.see(all)
	}
	return l.link.send(ctx, all)
}

// A claim that meets no other takes two round trips, the commit included. So does its release, and
// the release with a queue behind it.
func TestRoundTrips(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		e := openEngine(t, k.shared(t).Database(t))
		var mu sync.Mutex
		most := 0
		e.dialect = &watched{e.dialect, func() func(all []statement) []statement {
			trips := 0
			return func(all []statement) []statement {
				mu.Lock()
				defer mu.Unlock()
				trips++
				most = max(most, trips)
				return all
			}
		}}
		m := join(t, e, "a", cutTTL)
		count := func(what string, want int, do func()) {
			t.Helper()
			mu.Lock()
			most = 0
			mu.Unlock()
			do()
			mu.Lock()
			defer mu.Unlock()
			if most != want {
				t.Errorf("%s takes %d round trips, want %d", what, most, want)
			}
		}
		for id := uint64(1); id < 4; id++ {
			count("a claim", 2, func() { m.claim(exclusive(id, 0, "a/b"), lockkeeper.Held) })
			count("a release", 2, func() { m.release(id) })
		}
		for _, length := range []int{3, 3 * usual.prefix} {
			path := fmt.Sprint("line", length)
			first := uint64(100 * length)
			m.claim(exclusive(first, 0, path), lockkeeper.Held)
			for i := range length {
				m.claim(exclusive(first+1+uint64(i), lockkeeper.Forever, path), lockkeeper.Waiting)
			}
			place := 0 // it is not known in a long line
			if length < usual.prefix {
				place = length + 1
			}
			if st := m.claim(exclusive(first+1000, 0, path), lockkeeper.Ended); st.Position != place || len(st.Blockers) == 0 {
				t.Errorf("who does not wait in a line of %d would be in place %d behind %v, want %d", length, st.Position,
					st.Blockers,
					place)
			}
			for id := first; id < first+3; id++ {
				count(fmt.Sprintf("a release in a line of %d", length), 2, func() { m.release(id) })
			}
		}
	})
}

// Every row is found by an index, however small or full its table, and whether it has been analysed
// or not. There are no bitmap scans: they never mark dead index entries, and so read the remains of
// all claims that had a path before.
func TestPlans(t *testing.T) {
	t.Parallel()
	e := openEngine(t, kinds[0].shared(t).Database(t))
	var mu sync.Mutex
	plans := make(map[string]string) // of statements
	explain := func(all []statement) (more []statement) {
		for _, s := range all {
			if planned.MatchString(s.text) {
				more = append(more, statement{text: "EXPLAIN " + s.text, args: s.args, each: func(scan scanner) error {
					line := ""
					err := scan(&line)
					mu.Lock()
					defer mu.Unlock()
					plans[s.text] += line + "\n"
					return err
				}})
			}
			more = append(more, s)
		}
		return more
	}
	e.dialect = &watched{e.dialect, func() func([]statement) []statement { return explain }}
	work := func(session string) {
		m := join(t, e, session, cutTTL)
		m.claim(exclusive(1, 0, "line"), lockkeeper.Held)
		for id := uint64(2); id < 2*uint64(usual.prefix); id++ {
			m.claim(exclusive(id, lockkeeper.Forever, "line"), lockkeeper.Waiting)
			m.claim(exclusive(id+1000, 0, fmt.Sprint("a/", id)), lockkeeper.Held)
		}
		m.release(1)
		m.release(1002)
		if _, err := m.Renew(bounded(t), m.key); err != nil {
			t.Fatal(err)
		}
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
	}
	work("when nothing is known of the tables")
	if _, err := e.db.pool.Exec(e.db.sql("ANALYZE {claims}, {targets}, {sessions}")); err != nil {
		t.Fatal(err)
	}
	work("when something is")
	mu.Lock()
	defer mu.Unlock()
	if len(plans) < 10 {
		t.Errorf("only %d statements have plans", len(plans))
	}
	for text, plan := range plans {
		if slow := whole.FindString(plan); slow != "" {
			t.Errorf("%s: %s\n\nis done by\n%s", slow, text, plan)
		}
	}
}

var (
	planned = regexp.MustCompile(`(?s)^(SELECT|WITH|INSERT|UPDATE|DELETE) .*"(claims|targets|sessions)"`)
	whole   = regexp.MustCompile(`(Seq Scan on (claims|targets|sessions)|Bitmap|Hash Join|Merge Join|Join Filter).*`)
)
