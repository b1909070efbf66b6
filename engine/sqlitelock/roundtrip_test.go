package sqlitelock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// fakeClock is a boot clock that the test moves.
type fakeClock struct{ at atomic.Int64 }

func (c *fakeClock) read() (time.Duration, error) { return time.Duration(c.at.Load()), nil }
func (c *fakeClock) advance(d time.Duration)      { c.at.Add(int64(d)) }
func (c *fakeClock) set(d time.Duration)          { c.at.Store(int64(d)) }
func file(t testing.TB) string                    { return filepath.Join(t.TempDir(), "locks.db") }
func bounded(t testing.TB) context.Context        { return boundedBy(t, 30*time.Second) }
func boundedBy(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// openFake opens an engine on a clock of the test.
func openFake(t testing.TB, path string, clock *fakeClock, boot string) *Engine {
	t.Helper()
	e, err := open(bounded(t), path, options{}, clock.read, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func openReal(t testing.TB, path string) *Engine {
	t.Helper()
	e, err := Open(bounded(t), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// snapshot is the whole table as e sees it when it has read what is new.
func snapshot(t testing.TB, e *Engine) (snap table.Snapshot) {
	t.Helper()
	err := e.call(bounded(t), false, func(tx *transaction) {
		snap = e.cache.table.Snapshot()
		snap.Counters.Now = tx.now
		if err := e.cache.table.Check(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return remembered(snap)
}

// reloaded is the whole table as the rows alone tell it.
func reloaded(t testing.TB, e *Engine) (snap table.Snapshot) {
	t.Helper()
	err := e.call(bounded(t), false, func(tx *transaction) {
		c, _, err := loadAll(e.db, tx.meta, false)
		if err != nil {
			t.Error(err)
			return
		}
		snap = c.table.Snapshot()
		snap.Counters.Now = tx.now
	})
	if err != nil {
		t.Fatal(err)
	}
	return remembered(snap)
}

// remembered removes records that a process may have forgotten: ended claims older than a TTL. It
// also removes the time of the last read, which is no part of the state, and hold times, which only
// serve estimates.
func remembered(snap table.Snapshot) table.Snapshot {
	var claims []table.ClaimRecord
	for _, c := range snap.Claims {
		if c.UnackedUntil <= snap.Counters.Now {
			c.UnackedUntil = 0
		}
		if c.State != lockkeeper.Ended || c.Forget > snap.Counters.Now || c.UnackedUntil > 0 {
			claims = append(claims, c)
		}
	}
	snap.Claims = claims
	snap.HoldTimes = nil // the rows have them roughly: see TestHoldTimesAreKept
	return snap
}

func compare(t *testing.T, what string, got, want table.Snapshot) {
	t.Helper()
	got.Counters.Now = want.Counters.Now // when each was looked at
	if reflect.DeepEqual(got, want) {
		return
	}
	if got.Counters != want.Counters {
		t.Errorf("%s: counters %+v, want %+v", what, got.Counters, want.Counters)
	}
	differences(t, what, got.Sessions, want.Sessions, func(s table.SessionRecord) string { return s.ID })
	differences(t, what, got.Claims, want.Claims, func(c table.ClaimRecord) string { return c.Ref.String() })
	differences(t, what, got.Freezes, want.Freezes, func(f table.FreezeRecord) string { return string(f.Path) })
	t.FailNow()
}

func differences[T any](t *testing.T, what string, got, want []T, key func(T) string) {
	t.Helper()
	byKey := make(map[string][2]string)
	for i, records := range [2][]T{got, want} {
		for _, r := range records {
			both := byKey[key(r)]
			both[i] += fmt.Sprintf("%+v", r)
			byKey[key(r)] = both
		}
	}
	for k, both := range byKey {
		if both[0] != both[1] {
			t.Errorf("%s: %s\n got %s\nwant %s", what, k, both[0], both[1])
		}
	}
}

// A second process that reads the changes has the same state as the first, and so has a third that
// reads all rows.
func TestRoundTrip(t *testing.T) {
	r := testmode.Rand(t)
	clock := &fakeClock{}
	path := file(t)
	engines := []*Engine{
		openFake(t, path, clock, "boot"),
		openFake(t, path, clock, "boot"),
	}
	g := &generator{r: r, keys: map[string]lockkeeper.Key{}, states: r.IntN(2) == 0}
	steps := testmode.Pick(600, 20_000)
	for i := range steps {
		if r.IntN(3) == 0 {
			clock.advance(g.pick(0, 1, time.Millisecond, 300*time.Millisecond, time.Second, 2*time.Second))
		}
		e := engines[r.IntN(2)]
		did := g.step(t, e)
		if r.IntN(4) > 0 {
			continue // several changes are read at once
		}
		a, b := g.exact(snapshot(t, engines[0])), g.exact(snapshot(t, engines[1]))
		compare(t, fmt.Sprintf("step %d, after %s: second process", i, did), b, a)
		if r.IntN(4) == 0 {
			compare(t, fmt.Sprintf("step %d, after %s: all rows read", i, did), g.exact(reloaded(t, engines[1])), a)
		}
	}
}

// generator makes random calls.
type generator struct {
	r    *rand.Rand
	keys map[string]lockkeeper.Key
	last uint64
	made []lockkeeper.Want // with their sessions in by
	by   []string

	states bool // keys state what is answered
}

// exact leaves of a snapshot what every process has. An end that was forgotten
// because its session knows of it comes back where its row is read after the
// session was attached again: then it is remembered for the rest of its TTL.
func (g *generator) exact(snap table.Snapshot) table.Snapshot {
	if g.states {
		snap.Claims = slices.DeleteFunc(snap.Claims, func(c table.ClaimRecord) bool { return c.Acked })
	}
	if len(snap.Claims) == 0 {
		snap.Claims = nil // as that of none
	}
	return snap
}

func (g *generator) pick(ds ...time.Duration) time.Duration { return ds[g.r.IntN(len(ds))] }

// step does one call, and says which. What is refused is as good as the rest.
func (g *generator) step(t *testing.T, e *Engine) string {
	ctx := bounded(t)
	id := fmt.Sprintf("s%d", g.r.IntN(4))
	k, attached := g.keys[id]
	if g.states && g.r.IntN(3) == 0 && g.last > 3 {
		k.LowestOpen = g.last + 1 - uint64(g.r.IntN(4))
		k.Acked = uint64(1 + g.r.IntN(20))
	}
	n := g.r.IntN(100)
	var err error
	switch {
	case !attached || n < 4:
		s := lockkeeper.Session{
			ID:      id,
			TTL:     g.pick(time.Second, 2*time.Second, 5*time.Second),
			Outlive: g.r.IntN(4) > 0,
			Label:   lockkeeper.Label{As: "someone"},
		}
		for i, w := range g.made {
			if g.by[i] == id && g.r.IntN(2) == 0 {
				s.Named = append(s.Named, w.ID)
			}
		}
		var lease lockkeeper.Lease
		if g.r.IntN(8) > 0 {
			s.Epoch = k.Epoch
		}
		if lease, err = takeOver(ctx, e, s, nil); err == nil {
			g.keys[id] = lease.Key
		}
	case n < 24:
		if _, err = e.Renew(ctx, k); err != nil {
			delete(g.keys, id)
		}
	case n < 55:
		g.last++
		w := g.want()
		g.made, g.by = append(g.made, w), append(g.by, id)
		_, err = e.Claim(ctx, k, w)
	case n < 65 && len(g.made) > 0:
		i := g.r.IntN(len(g.made))
		w := g.amend(g.made[i])
		if _, err = e.Claim(ctx, g.keys[g.by[i]], w); err == nil {
			g.made[i] = w
		}
	case n < 87 && len(g.made) > 0:
		i := len(g.made) - 1 - g.r.IntN(min(len(g.made), 8))
		err = e.End(ctx, g.keys[g.by[i]], lockkeeper.Ending{Kind: lockkeeper.Release, ID: g.made[i].ID})
	case n < 92 && len(g.made) > 0:
		i := len(g.made) - 1 - g.r.IntN(min(len(g.made), 8))
		ref := lockkeeper.Ref{Session: g.by[i], ID: g.made[i].ID}
		err = e.End(ctx, k, lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   ref,
			Force: g.r.IntN(2) == 0,
			Label: lockkeeper.Label{Note: "because"},
		})
	case n < 95:
		err = e.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: g.path()})
	case n < 97:
		err = e.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Leave})
		delete(g.keys, id)
	}
	return fmt.Sprintf("%d of %s (%v)", n, id, err)
}

func (g *generator) path() lockkeeper.Path {
	return []lockkeeper.Path{"a", "a/b", "a/b/c", "d", "d/e"}[g.r.IntN(5)]
}

func (g *generator) want() lockkeeper.Want {
	r := g.r
	w := lockkeeper.Want{
		ID: g.last, Priority: r.IntN(3), Wait: g.pick(0, time.Second, 3*time.Second, lockkeeper.Forever, lockkeeper.Forever),
		MaxHold:  g.pick(0, 0, 0, time.Second),
		Expected: g.pick(0, 0, 0, 2*time.Second),
		Label:    lockkeeper.Label{As: "somebody", Link: "http://x/?a=1&b"},
	}
	if r.IntN(20) == 0 {
		return lockkeeper.Want{
			ID:      g.last,
			Freeze:  g.pick(time.Second, 3*time.Second),
			Targets: []lockkeeper.Target{{Path: g.path(), Mode: lockkeeper.ModeExclusive}},
		}
	}
	if w.MaxHold > 0 {
		w.Grace = time.Second
	}
	if len(g.made) > 0 && r.IntN(4) == 0 {
		i := r.IntN(len(g.made))
		w.Inside = lockkeeper.Ref{Session: g.by[i], ID: g.made[i].ID}
	}
	shared := r.IntN(3) == 0
	for range 1 + r.IntN(2) {
		target := lockkeeper.Target{Path: g.path(), Mode: lockkeeper.ModeExclusive}
		switch {
		case shared:
			target.Mode = lockkeeper.ModeShared
		case r.IntN(3) == 0:
			target.Mode, target.Limit = lockkeeper.ModePermits, 1+r.IntN(4)
			target.Units = 1 + r.IntN(target.Limit)
		}
		w.Targets = append(w.Targets, target)
	}
	switch r.IntN(4) {
	case 0:
		w.Steal, w.After = lockkeeper.Take, g.pick(0, time.Second)
		if w.After == 0 {
			w.AfterTTL = r.IntN(1001)
		}
	case 1:
		w.Steal = lockkeeper.Ask
	case 2:
		if w.Features()&lockkeeper.FeaturePermits == 0 && !shared {
			w.WriterPolicy, w.Quiet = lockkeeper.Soft, g.pick(0, time.Second)
		}
	}
	return w
}

// amend changes w under a higher revision.
func (g *generator) amend(w lockkeeper.Want) lockkeeper.Want {
	w.Revision++
	w.Targets = append([]lockkeeper.Target(nil), w.Targets...)
	switch g.r.IntN(3) {
	case 0:
		w.Priority++
	case 1:
		for i := range w.Targets {
			if w.Targets[i].Mode == lockkeeper.ModePermits {
				w.Targets[i].Limit++
			}
		}
	case 2:
		for i := range w.Targets {
			switch w.Targets[i].Mode {
			case lockkeeper.ModeShared:
				w.Targets[i].Mode = lockkeeper.ModeExclusive
			case lockkeeper.ModeExclusive:
				w.Targets[i].Mode = lockkeeper.ModeShared
			}
		}
	}
	return w
}

// Processes share their estimates of hold times, roughly, and without those that are too old.
func TestHoldTimesAreKept(t *testing.T) {
	clock, path := &fakeClock{}, file(t)
	one := openFake(t, path, clock, "boot")
	two := openFake(t, path, clock, "boot")
	lease, err := one.Attach(bounded(t), lockkeeper.Session{ID: "s", TTL: time.Hour, Outlive: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := uint64(0)
	hold := func(d time.Duration, path lockkeeper.Path) {
		t.Helper()
		id++
		want := lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}}
		if _, err := one.Claim(bounded(t), lease.Key, want); err != nil {
			t.Fatal(err)
		}
		clock.advance(d)
		if err := one.End(bounded(t), lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	holdTimes := func(e *Engine) map[lockkeeper.Path]time.Duration {
		t.Helper()
		all := make(map[lockkeeper.Path]time.Duration)
		err := e.call(bounded(t), false, func(tx *transaction) {
			c, _, err := loadAll(e.db, tx.meta, false)
			if err != nil {
				t.Error(err)
				return
			}
			for _, p := range c.table.Snapshot().HoldTimes {
				all[p.Path] = p.Estimate
			}
			for _, p := range e.cache.table.Snapshot().HoldTimes {
				if row := all[p.Path]; (row - p.Estimate).Abs() > row/8 {
					t.Errorf("the pace of %s is %s, its row has %s", p.Path, p.Estimate, row)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	hold(8*time.Second, "db")
	hold(time.Second, "x")
	for _, e := range []*Engine{one, two} {
		if got := holdTimes(e); got["db"] != 8*time.Second || got["x"] != time.Second {
			t.Errorf("holdTimes: %v", got)
		}
	}
	hold(10*time.Second, "db") // 8.5s: not worth a write
	if got := holdTimes(one)["db"]; got != 8*time.Second {
		t.Errorf("after a little more: %s", got)
	}
	hold(12*time.Second, "db") // 9.375s
	if got := holdTimes(two)["db"]; got != 9375*time.Millisecond {
		t.Errorf("after much more: %s", got)
	}
	for i := range table.MaxHoldTimes - 1 {
		hold(time.Millisecond, lockkeeper.Path(fmt.Sprintf("p%d", i)))
	}
	got := holdTimes(two)
	if _, old := got["x"]; old || got["db"] == 0 || len(got) != table.MaxHoldTimes {
		t.Errorf("%d holdTimes, that of x among them: %v", len(got), old)
	}
}
