package grab_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	"github.com/lockkeeper/lockkeeper/grab"
)

// world is one engine with two Reservations, which calls use in turn, as two processes would.
type world struct {
	*testing.T
	engines [2]lockkeeper.Engine
	calls   atomic.Int64
	start   time.Time
}

// onEachEngine runs a test on an engine in memory, in fake time, and on SQLite.
func onEachEngine(t *testing.T, play func(w *world)) {
	t.Run("mem", func(t *testing.T) { inMemory(t, play) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		play(onSQLite(t))
	})
}

// inMemory runs a test on an engine in memory, in a bubble of fake time.
func inMemory(t *testing.T, play func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		defer e.Close()
		play(&world{T: t, engines: [2]lockkeeper.Engine{e, e}, start: time.Now()})
	})
}

func onSQLite(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, start: time.Now()}
	path := filepath.Join(t.TempDir(), "locks.db")
	for i := range w.engines {
		e, err := sqlitelock.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		w.engines[i] = e
	}
	return w
}

func (w *world) engine() lockkeeper.Engine   { return w.engines[w.calls.Add(1)%2] }
func (w *world) process() *grab.Reservations { return grab.New(w.engine()) }
func (w *world) clock() time.Duration        { return time.Since(w.start) }

// ctx bounds one call, so that a call that hangs fails the test.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) pass(d time.Duration) { <-time.After(d) }

// paths reads paths as a person types them.
func (w *world) paths(texts ...string) []lockkeeper.Path {
	w.Helper()
	var paths []lockkeeper.Path
	for _, text := range texts {
		p, err := lockkeeper.ParsePath(text)
		if err != nil {
			w.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func (w *world) name(as string, paths ...string) grab.Name {
	w.Helper()
	return grab.Name{As: as, Paths: w.paths(paths...)}
}

func exclusive(path lockkeeper.Path) lockkeeper.Target {
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
}

func shared(path lockkeeper.Path) lockkeeper.Target {
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModeShared}
}

func permits(path lockkeeper.Path, units, limit int) lockkeeper.Target {
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModePermits, Units: units, Limit: limit}
}

// grabs calls Grab, which must succeed.
func (w *world) grabs(r grab.Request) grab.Answer {
	w.Helper()
	a, err := w.process().Grab(w.ctx(), r)
	if err != nil {
		w.Fatalf("%s grabs %v: %v", r.As, r.Targets, err)
	}
	return a
}

func (w *world) request(as string, paths ...string) grab.Request {
	w.Helper()
	r := grab.Request{As: as}
	for _, p := range w.paths(paths...) {
		r.Targets = append(r.Targets, exclusive(p))
	}
	return r
}

// ok calls Grab, whose answer must be Held.
func (w *world) ok(as string, paths ...string) grab.Answer {
	w.Helper()
	return w.oks(w.request(as, paths...))
}

func (w *world) oks(r grab.Request) grab.Answer {
	w.Helper()
	a := w.grabs(r)
	if a.State != lockkeeper.Held || a.Fence == 0 {
		w.Fatalf("%s grabs %v: %s, place %d; want ok", r.As, r.Targets, a.State, a.Position)
	}
	return a
}

// wait calls Grab, whose answer must be Waiting at that position; 0 stands for any.
func (w *world) wait(place int, as string, paths ...string) grab.Answer {
	w.Helper()
	return w.waits(place, w.request(as, paths...))
}

func (w *world) waits(place int, r grab.Request) grab.Answer {
	w.Helper()
	a := w.grabs(r)
	if a.State != lockkeeper.Waiting || a.Position == 0 || place != 0 && a.Position != place {
		w.Fatalf("%s grabs %v: %s, place %d; want wait %d", r.As, r.Targets, a.State, a.Position, place)
	}
	return a
}

// released calls Release, which must return that number.
func (w *world) released(n int, as string, paths ...string) {
	w.Helper()
	got, err := w.process().Release(w.ctx(), w.name(as, paths...))
	if err != nil || got != n {
		w.Fatalf("%s releases %v: %d (%v), want %d", as, paths, got, err, n)
	}
}

// renews calls Renew, which must succeed.
func (w *world) renews(as string, paths ...string) grab.Answer {
	w.Helper()
	a, err := w.process().Renew(w.ctx(), w.name(as, paths...), grab.Terms{})
	if err != nil {
		w.Fatalf("%s renews %v: %v", as, paths, err)
	}
	return a
}

// lost calls Renew, which must return an ErrLost with that reason.
func (w *world) lost(why lockkeeper.Reason, as string, paths ...string) {
	w.Helper()
	a, err := w.process().Renew(w.ctx(), w.name(as, paths...), grab.Terms{})
	w.isLost(err, why)
	if a.State != 0 {
		w.Errorf("%s has %v although it is lost", as, a.State)
	}
}

// expired is lost for a claim that ended by its TTL, which the engine may have forgotten.
func (w *world) expired(as string, paths ...string) {
	w.Helper()
	_, err := w.process().Renew(w.ctx(), w.name(as, paths...), grab.Terms{})
	var e *lockkeeper.Error
	if !errors.Is(err, lockkeeper.ErrLost) || !errors.As(err, &e) ||
		e.Reason != lockkeeper.NoReason && e.Reason != lockkeeper.Expired {
		w.Fatalf("got %v, want ErrLost, expired", err)
	}
}

func (w *world) isLost(err error, why lockkeeper.Reason) {
	w.Helper()
	var e *lockkeeper.Error
	if !errors.Is(err, lockkeeper.ErrLost) || !errors.As(err, &e) || e.Reason != why {
		w.Fatalf("got %v, want ErrLost because of %s", err, why)
	}
}

// revoke ends the claim of the name by force, as an operator.
func (w *world) revoke(as string, paths ...string) {
	w.Helper()
	w.operates(true, as, paths)
}

// asks asks the holder to yield, as an operator.
func (w *world) asks(as string, paths ...string) {
	w.Helper()
	w.operates(false, as, paths)
}

func (w *world) operates(force bool, as string, paths []string) {
	w.Helper()
	e := w.engine()
	lease, err := w.takesOver(lockkeeper.Session{ID: "operator", TTL: time.Minute})
	if err == nil {
		err = e.End(w.ctx(), lease.Key, lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   w.name(as, paths...).Ref(),
			Force: force,
			Label: lockkeeper.Label{As: "ops", Note: "stuck"},
		})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// takesOver attaches a session, also if it is open.
func (w *world) takesOver(s lockkeeper.Session) (lockkeeper.Lease, error) {
	e := w.engine()
	lease, err := e.Attach(w.ctx(), s, nil)
	var told *lockkeeper.Error
	if errors.As(err, &told) && told.Epoch != 0 {
		s.Epoch = told.Epoch
		lease, err = e.Attach(w.ctx(), s, nil)
	}
	return lease, err
}

// listed counts the claims that List yields.
func (w *world) listed() (n int) {
	w.Helper()
	for _, err := range w.engine().List(w.ctx(), lockkeeper.Query{}) {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}
