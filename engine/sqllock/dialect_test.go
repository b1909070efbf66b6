package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// pausing is a dialect whose transactions pause before their commit, when all is written, until do
// returns.
type pausing struct {
	dialect
	do atomic.Pointer[func()] // nil: they don't
}

func (p *pausing) with(ctx context.Context, pool *sql.DB, do func(link) error) error {
	return p.dialect.with(ctx, pool, func(l link) error { return do(pausingLink{l, p}) })
}

func (p *pausing) begin(patience) []statement {
	return p.dialect.begin(patience{latchPatience, longest})
}

type pausingLink struct {
	link
	p *pausing
}

func (l pausingLink) send(ctx context.Context, all []statement) error {
	last := len(all) - 1
	if do := l.p.do.Load(); do != nil && all[last].text == l.p.commit().text && l.p.do.CompareAndSwap(do, nil) {
		if err := l.link.send(ctx, all[:last]); err != nil {
			return err
		}
		(*do)()
		all = all[last:]
	}
	return l.link.send(ctx, all)
}

// While a transaction at user/1 has written all and has not committed, other transactions at
// user/2, renewals and clean-ups do not wait.
func TestOthersDoNotWait(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		e, other := openEngine(t, url), openEngine(t, url)
		p := &pausing{dialect: e.dialect}
		e.dialect = p
		one, two := join(t, e, "one", cutTTL), join(t, other, "two", cutTTL)
		one.claim(exclusive(1, 0, "user/1"), lockkeeper.Held)
		two.claim(exclusive(1, 0, "user/2"), lockkeeper.Held)
		paused := 0
		others := func() {
			paused++
			id := uint64(10 * paused)
			two.claim(exclusive(id, 0, "user/3"), lockkeeper.Held)
			two.claim(exclusive(id+1, lockkeeper.Forever, "user/3/a"), lockkeeper.Waiting)
			two.release(id)
			two.await(id+1, lockkeeper.Held)
			two.release(id + 1)
			if _, err := two.Renew(bounded(t), two.key); err != nil {
				t.Error(err)
			}
			three := join(t, other, fmt.Sprint("three", paused), cutTTL)
			three.claim(exclusive(1, 0, "user/4"), lockkeeper.Held)
			three.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
			clearUp(t, other, 0)
		}
		for _, act := range []func(){
			func() { one.claim(exclusive(2, 0, "user/6/a", "user/5"), lockkeeper.Held) },
			func() { one.release(1) },
			func() { one.Renew(bounded(t), one.key) },
			func() { join(t, e, "five", cutTTL) },
			func() { one.end(lockkeeper.Ending{Kind: lockkeeper.Leave}) },
		} {
			p.do.Store(&others)
			act()
			if p.do.Swap(nil) != nil {
				t.Error("it did not commit")
			}
		}
	})
}

// send has statements done one after the other.
func send(t *testing.T, e *Engine, all ...statement) {
	t.Helper()
	if err := e.dialect.with(bounded(t), e.db.pool, func(l link) error { return l.send(bounded(t), all) }); err != nil {
		t.Errorf("%s: %v", all[0].text, err)
	}
}

// clearUp removes all that is not needed any more a while from now.
func clearUp(t *testing.T, e *Engine, later time.Duration) {
	t.Helper()
	var at reading
	send(t, e, e.dialect.clock(&at, 0)...)
	for _, s := range e.dialect.purge(at.now+later, at.now+later) {
		send(t, e, s)
	}
}

// The clean-up removes rows that nobody needs any more, and no others.
func TestPurge(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		e, db := openEngine(t, url), opened(t, url)
		m := join(t, e, "m", cutTTL)
		first := m.claim(exclusive(math.MaxUint64-1, 0, "a/é"), lockkeeper.Held)
		m.claim(exclusive(2, 0, "b", "c"), lockkeeper.Held)
		m.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "m", ID: 2}, Force: true})
		gone := join(t, e, "gone", cutTTL)
		gone.claim(exclusive(1, 0, "d"), lockkeeper.Held)
		gone.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		var holdTimes []table.HoldTimeRecord
		for i := range table.MaxHoldTimes + 5 {
			holdTimes = append(holdTimes, table.HoldTimeRecord{
				Path:     lockkeeper.Path(fmt.Sprint("p", i)),
				Estimate: 1,
				At:       time.Duration(i),
			})
		}
		send(t, e, e.dialect.putHoldTimes(holdTimes)...)
		db.mustExec(t, "INSERT INTO {wakeups} (process, session, id, sent_ns) VALUES ('p', 's', 1, 1)",
			"INSERT INTO {watchers} VALUES ('p', 1)")
		most := map[string]int{
			"claims":     1,
			"targets":    1,
			"sessions":   1,
			"wakeups":    0,
			"watchers":   0,
			"hold_times": table.MaxHoldTimes,
		}
		if db.flavour == mysql {
			db.mustExec(t, "INSERT INTO {sequences} SELECT n + 1000 FROM {latches} WHERE n > 0")
			most["sequences"] = spareNumbers + 2
		}
		if rows := count(t, db, "targets WHERE class = 4"); rows != 2 {
			t.Errorf("there are %d targets of which the holder may not know the end, want 2", rows)
		}
		clearUp(t, e, 1000*time.Hour)
		for name, want := range most {
			if rows := count(t, db, name); rows > want || rows < min(want, 1) {
				t.Errorf("%s has %d rows, want %d", name, rows, want)
			}
		}
		m.release(math.MaxUint64 - 1)
		if st := m.claim(exclusive(3, 0, "a/é", "b", "c"), lockkeeper.Held); st.Fence <= first.Fence {
			t.Errorf("fence %d after %d", st.Fence, first.Fence)
		}
	})
}

func count(t *testing.T, db database, from string) (n int) {
	t.Helper()
	name, where, _ := strings.Cut(from, " ")
	if err := db.pool.QueryRow(db.sql("SELECT count(*) FROM {" + name + "} " + where)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A transaction writes nothing if a session that it has read has changed since. It learns that in
// one round trip, and its connection stays intact.
func TestHold(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		e := openEngine(t, k.shared(t).Database(t))
		for _, id := range []string{"a", "b"} {
			join(t, e, id, cutTTL)
		}
		found := make(map[string]session)
		holdTimes := 0
		send := func(all ...statement) error {
			return e.dialect.with(bounded(t), e.db.pool, func(l link) error { return l.send(bounded(t), all) })
		}
		if err := send(e.dialect.sessions([]string{"a", "b"}, false, func(s *session) { found[s.ID] = *s })); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			ids  []string
			late int64 // how far the version of the last is off
			want error
		}{
			{[]string{"a", "b"}, 0, nil}, {[]string{"b"}, 0, nil}, {[]string{"a", "b"}, -1, errConflict},
			{[]string{"b"}, 1, errConflict}, {[]string{"a", "gone"}, 0, errConflict},
		} {
			held := make([]session, len(c.ids))
			for i, id := range c.ids {
				held[i] = found[id]
				held[i].ID = id
				held[i].Acked, held[i].LowestOpen = uint64(holdTimes), uint64(2*holdTimes)
			}
			held[len(held)-1].version += c.late
			all := append(e.dialect.begin(patience{latchPatience, idleFirst}), e.dialect.hold(held)...)
			holdTimes++
			all = append(all, e.dialect.putHoldTimes([]table.HoldTimeRecord{{
				Path:     lockkeeper.Path(fmt.Sprint("p", holdTimes)),
				Estimate: 1,
				At:       1,
			}})...)
			err := send(append(all, e.dialect.commit())...)
			if c.want == nil && err != nil || c.want != nil && e.dialect.outcomeOf(err, true) != retryable {
				t.Errorf("%v off by %d: %v", c.ids, c.late, err)
			}
			written := false
			if err := send(e.dialect.holdTimes([]lockkeeper.Path{lockkeeper.Path(fmt.Sprint("p", holdTimes))},
				func(table.HoldTimeRecord) {
					written = true
				})); err != nil || written != (c.want == nil) {
				t.Errorf("%v off by %d: written %t, %v", c.ids, c.late, written, err)
			}
			was := maps.Clone(found)
			if err := send(e.dialect.sessions([]string{"a", "b"}, false, func(s *session) { found[s.ID] = *s })); err != nil {
				t.Fatal(err)
			}
			for i, id := range c.ids {
				want := was[id]
				if c.want == nil {
					want = held[i]
					want.version++
				}
				if found[id] != want {
					t.Errorf("%v off by %d: %+v, want %+v", c.ids, c.late, found[id], want)
				}
			}
		}
	})
}

// A search reads the prefixes of long queues, each in its order, and all holders; a row of two
// regions is found in both.
func TestSearchReadsPrefixes(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		e := openEngine(t, k.shared(t).Database(t))
		const line, number = 3, 12
		holder, m := join(t, e, "holder", cutTTL), join(t, e, "m", cutTTL)
		var held []uint64
		for i, path := range []string{"a", "a-b", "a0"} { // before and after the paths below a, byte by byte
			holder.claim(exclusive(uint64(i+1), 0, path), lockkeeper.Held)
		}
		held = append(held, 1)
		var waiting []lockkeeper.Want
		for i := range number {
			w := exclusive(uint64(i+1), lockkeeper.Forever, []string{"a", "a/b", "a/b/c", "a0"}[i%4])
			w.Priority = []int{0, 0, 5, 0, -1, 0, 2}[i%7]
			if i%5 == 0 {
				w.WriterPolicy = lockkeeper.Soft
			}
			m.claim(w, lockkeeper.Waiting)
			waiting = append(waiting, w)
		}
		slices.SortStableFunc(waiting, func(a, b lockkeeper.Want) int {
			class := func(w lockkeeper.Want) int {
				if w.WriterPolicy == lockkeeper.Soft {
					return classSoft
				}
				return classHard
			}
			return order{class: class(a), priority: a.Priority}.compare(order{class: class(b), priority: b.Priority})
		})
		s := newScope(usual)
		s.add([]lockkeeper.Target{{Path: "a/b"}, {Path: "a/b/c", Mode: lockkeeper.ModeExclusive}})
		find := &search{regions: s.regions(), limit: line}
		find.regions = append(find.regions, region{"a", below})
		got := make(map[int][]uint64)
		var holds []uint64
		err := e.dialect.with(bounded(t), e.db.pool, func(l link) error {
			return l.send(bounded(t), []statement{e.dialect.claims(find, func(region int, c *rows.Claim) {
				if c.Ref.Session == "holder" {
					holds = append(holds, c.Ref.ID)
				} else {
					got[region] = append(got[region], c.Ref.ID)
				}
			})})
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range find.regions {
			var want []uint64
			for _, w := range waiting {
				path := w.Targets[0].Path
				if len(want) < line && (r.part == below && strings.HasPrefix(string(path), string(r.path)+"/") ||
					r.part != below && path == r.path) {
					want = append(want, w.ID)
				}
			}
			slices.Sort(want)
			slices.Sort(got[i])
			if !slices.Equal(got[i], want) {
				t.Errorf("of %v there are %v, want %v", r, got[i], want)
			}
		}
		if holds = slices.Compact(holds); !slices.Equal(holds, held) {
			t.Errorf("those who hold: %v, want %v", holds, held)
		}
	})
}

// If rows of latches were removed, transactions fail: nothing is granted without them.
func TestLostLatches(t *testing.T) {
	t.Parallel()
	url := newMariaDB(t)
	e := openEngine(t, url)
	m := join(t, e, "m", cutTTL)
	m.claim(exclusive(1, 0, "a"), lockkeeper.Held)
	opened(t, url).mustExec(t, "DELETE FROM {latches}")
	_, err := m.Claim(bounded(t), m.key, exclusive(2, 0, "b"))
	wantError(t, err, lockkeeper.ErrUnavailable, "latches")
	if !errors.Is(err, errBroken) {
		t.Errorf("the error is %v", err)
	}
}
