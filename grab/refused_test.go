package grab_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// bounded refuses TTLs of more than an hour, claims below a denied path, and sessions beyond a
// number. It counts the open sessions.
type bounded struct {
	lockkeeper.Engine
	open map[string]bool
	most int // 0: any number
}

var errQuota = &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: "too much"}

func (b *bounded) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if s.TTL > time.Hour || b.most > 0 && len(b.open) == b.most && !b.open[s.ID] {
		return lockkeeper.Lease{}, errQuota
	}
	l, err := b.Engine.Attach(ctx, s, notify)
	if err == nil {
		b.open[s.ID] = true
	}
	return l, err
}

func (b *bounded) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if w.Targets[0].Path == "denied" {
		return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrDenied}
	}
	if w.Targets[0].Path == "lost" {
		if _, err := b.Engine.Claim(ctx, k, w); err != nil {
			return lockkeeper.Status{}, err
		}
		return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}
	}
	return b.Engine.Claim(ctx, k, w)
}

func (b *bounded) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	err := b.Engine.End(ctx, k, e)
	if err == nil && e.Kind == lockkeeper.Leave {
		delete(b.open, k.Session)
	}
	return err
}

// TestRefusedBringsNothing: a refused request leaves neither claim nor session, and the name keeps
// its earlier claim.
func TestRefusedBringsNothing(t *testing.T) {
	onEachEngine(t, func(w *world) {
		b := &bounded{Engine: w.engines[0], open: map[string]bool{}}
		reservations := grab.New(b)
		grabs := func(as, path string, long time.Duration) (grab.Answer, error) {
			r := w.request(as, path)
			r.For = long
			return reservations.Grab(w.ctx(), r)
		}
		refused := func(as, path string, listed int) {
			w.Helper()
			a, err := grabs(as, path, 2*time.Hour)
			if !errors.Is(err, lockkeeper.ErrDenied) || a.State != 0 {
				w.Errorf("%s grabs %s: %v (%v), want it refused", as, path, a.State, err)
			}
			if n := w.listed(); n != listed || len(b.open) != listed {
				w.Errorf("%s was refused %s: %d claims, %d sessions, want %d of each", as, path, n, len(b.open), listed)
			}
		}
		refused("ci", "db", 0) // it would have been held at once
		refused("ci", "denied", 0)
		if a, err := grabs("ci", "db", time.Hour); err != nil || a.State != lockkeeper.Held || a.TTL != time.Hour {
			w.Fatalf("%v, %v", a, err)
		}
		refused("ci", "db", 1) // and has what it had
		refused("web", "db", 1)
		if a, err := reservations.Wait(w.ctx(), grab.Request{
			As:      "web",
			Targets: w.request("", "db").Targets,
			Terms:   grab.Terms{For: 2 * time.Hour},
		}, time.Minute, nil); !errors.Is(err, lockkeeper.ErrDenied) || len(b.open) != 1 {
			w.Errorf("it waits: %v, %v, %d sessions", a.State, err, len(b.open))
		}
		b.most = 2
		if a, err := grabs("web", "db", time.Hour); err != nil || a.State != lockkeeper.Waiting {
			w.Errorf("a place, with no room to ask: %v, %v", a.State, err)
		}
		b.most = 0
		if _, err := grabs("me", "lost", 0); !errors.Is(err, lockkeeper.ErrUnavailable) || w.listed() != 3 {
			w.Errorf("of unknown outcome: %v, %d claims, want it left", err, w.listed())
		}
	})
}

// TestRefusedRenewsNothing: a request for something else than the name has is refused, and its claim
// ends as early as without that request.
func TestRefusedRenewsNothing(t *testing.T) {
	inMemory(t, func(w *world) {
		short := w.request("ci", "db")
		short.TTL = 2 * time.Second
		other := grab.Request{As: "ci", Targets: []lockkeeper.Target{shared("db")}, Terms: grab.Terms{TTL: time.Hour}}
		refused := func(err error) {
			w.Helper()
			if !errors.Is(err, lockkeeper.ErrInvalid) {
				w.Errorf("got %v, want it refused", err)
			}
		}
		again := func() {
			w.Helper()
			_, err := w.process().Grab(w.ctx(), other)
			refused(err)
			_, err = w.process().Wait(w.ctx(), other, time.Minute, nil)
			refused(err)
		}
		hold := w.oks(short)
		w.pass(time.Second)
		again()
		_, err := w.process().Confirm(w.ctx(), other, hold.Token)
		refused(err)
		w.pass(time.Second)
		w.expired("ci", "db")

		w.ok("holder", "db")
		w.waits(1, short)
		w.pass(time.Second)
		again()
		w.pass(time.Second)
		w.expired("ci", "db")
	})
}

// TestRefusedAfterTheLook: another process of the name may make its claim after a request has looked for
// one. Then the request is refused all the same.
func TestRefusedAfterTheLook(t *testing.T) {
	onEachEngine(t, func(w *world) {
		n, other := w.name("ci", "db"), w.engine()
		lease, err := other.Attach(w.ctx(), lockkeeper.Session{ID: n.Session(), TTL: grab.DefaultTTL, Outlive: true}, nil)
		if err != nil {
			w.Fatal(err)
		}
		e := &afterLook{w.engine(), func() {
			want := lockkeeper.Want{ID: n.Ref().ID, Targets: []lockkeeper.Target{shared("db")}}
			if st, err := other.Claim(w.ctx(), lease.Key, want); err != nil || st.State != lockkeeper.Held {
				w.Errorf("%s, %v", st.State, err)
			}
		}}
		a, err := grab.New(e).Grab(w.ctx(), w.request("ci", "db"))
		if !errors.Is(err, lockkeeper.ErrInvalid) || e.then != nil || a.State != 0 {
			w.Errorf("%s, %v; want it refused", a.State, err)
		}
		if a := w.renews("ci", "db"); a.State != lockkeeper.Held || a.Grants[0].Mode != lockkeeper.ModeShared {
			w.Errorf("it has %s %v, want the claim of the other process", a.State, a.Grants)
		}
	})
}

// afterLook is an engine that calls then after the next list.
type afterLook struct {
	lockkeeper.Engine
	then func()
}

func (e *afterLook) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		for st, err := range e.Engine.List(ctx, q) {
			if !yield(st, err) {
				break
			}
		}
		if then := e.then; then != nil {
			e.then = nil
			then()
		}
	}
}
