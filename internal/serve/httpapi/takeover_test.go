package httpapi

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A trap is an engine in which something happens just before, or just after, its
// n-th call.
type trap struct {
	lockkeeper.Engine
	at    int64 // 2n: before call n; 2n+1: after it. Below 0: never
	calls atomic.Int64
	do    func()
}

func (e *trap) around(call func()) {
	n := e.calls.Add(1) - 1
	if e.at == 2*n {
		e.do()
	}
	call()
	if e.at == 2*n+1 {
		e.do()
	}
}

func (e *trap) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (l lockkeeper.Lease,
	err error) {
	e.around(func() { l, err = e.Engine.Attach(ctx, s, notify) })
	return l, err
}

func (e *trap) Renew(ctx context.Context, k lockkeeper.Key) (l lockkeeper.Lease, err error) {
	e.around(func() { l, err = e.Engine.Renew(ctx, k) })
	return l, err
}

func (e *trap) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (st lockkeeper.Status, err error) {
	e.around(func() { st, err = e.Engine.Claim(ctx, k, w) })
	return st, err
}

func (e *trap) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) (err error) {
	e.around(func() { err = e.Engine.End(ctx, k, ending) })
	return err
}

// List is passed on where it follows: that only wakes.
func (e *trap) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if q.Follow {
		return e.Engine.List(ctx, q)
	}
	return func(yield func(lockkeeper.Status, error) bool) {
		var all []lockkeeper.Status
		e.around(func() {
			for st := range e.Engine.List(ctx, q) {
				all = append(all, st)
			}
		})
		for _, st := range all {
			if !yield(st, nil) {
				return
			}
		}
	}
}

// sweep runs a test with a trap before and after each call that it makes. It
// returns whether the trap was sprung.
func sweep(t *testing.T, test func(w *world, e *trap)) {
	sprung := 0
	for at := int64(0); ; at++ {
		done := false
		inMemory(t, 0, func(w *world) {
			e := &trap{Engine: w.engine, at: at, do: func() {}}
			w.engine = e
			w.serve()
			w.engine = e.Engine
			test(w, e)
			done = e.calls.Load()*2 <= at
		})
		if done || t.Failed() {
			break
		}
		sprung++
	}
	if sprung < 6 {
		t.Errorf("only %d moments were tried", sprung)
	}
}

// TestClientGivesUpAtEachExchange: it waits, is granted in the end, and goes away
// just before or after each thing that its server asks of the engine. Then it has been
// answered, or nothing of it is left.
func TestClientGivesUpAtEachExchange(t *testing.T) {
	sweep(t, func(w *world, e *trap) {
		blocker, err := w.engine.Attach(w.Context(), lockkeeper.Session{ID: "blocker", TTL: time.Hour}, nil)
		if err != nil {
			w.Fatal(err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if _, err := w.engine.Claim(w.Context(), blocker.Key, want); err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		e.do = func() { cancel(); idle(1) } // by then the server knows
		told := make(chan answer, 1)
		go func() {
			a, _ := w.try(ctx, "server0", "POST", "/v1/claims?poll=30s", `{"path":"db","wait":"1h","ttl":"6s"}`)
			told <- a
		}()
		w.pass(5 * time.Second)
		_ = w.engine.End(w.Context(), blocker.Key, lockkeeper.Ending{Kind: lockkeeper.Leave})
		a := <-told
		w.pass(time.Millisecond)
		if a.status != 201 && !w.free() {
			w.Errorf("at moment %d: not told, and something is left", e.at)
		}
		if a.status == 201 && w.state(a.Ref) != lockkeeper.Held && e.at < e.calls.Load()*2-2 {
			w.Errorf("at moment %d: told %s, and it is not held", e.at, a.text)
		}
	})
}

// TestClaimEndsAtEachExchange: the session of a claim expires just before or after each
// thing that a renewal or a release, by a server that does not know it, asks of the
// engine. Then it is over: nobody says otherwise, and nothing new is made.
func TestClaimEndsAtEachExchange(t *testing.T) {
	for name, c := range map[string]struct{ method, action, key string }{
		"renewed": {"POST", "/renew", ""}, "released": {"DELETE", "", ""}, "with a key": {"DELETE", "", "k"},
	} {
		t.Run(name, func(t *testing.T) { endsAtEachMoment(t, c.method, c.action, c.key) })
	}
}

func endsAtEachMoment(t *testing.T, method, action, key string) {
	sweep(t, func(w *world, e *trap) {
		id := newSessionID(2*time.Second, key)
		lease, err := w.engine.Attach(w.Context(), lockkeeper.Session{ID: id, TTL: 2 * time.Second}, nil)
		if err != nil {
			w.Fatal(err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if _, err := w.engine.Claim(w.Context(), lease.Key, want); err != nil {
			w.Fatal(err)
		}
		began := time.Now()
		e.do = func() { idle(3 * time.Second) }
		a := w.ask(method, "/v1/claims/"+id+".1"+action, "")
		if a.status == 200 && time.Since(began) < a.ttl && w.state(lockkeeper.Ref{Session: id, ID: 1}) != lockkeeper.Held {
			w.Errorf("at moment %d: told %s, and it is over", e.at, a.text)
		}
		if a.status != 200 && a.status != 204 && a.status != 410 && a.status != 404 {
			w.Errorf("at moment %d: %d %s", e.at, a.status, a.text)
		}
		if a.status != 200 && (a.status != 204 || key == "") { // a key's end is remembered
			for st := range w.engine.List(w.Context(), lockkeeper.Query{Session: id}) {
				w.Errorf("at moment %d: the renewal failed, and there is %s", e.at, st.Ref)
			}
			// A session that was made on the way would refuse this attach.
			if _, err := w.engine.Attach(w.Context(), lockkeeper.Session{ID: id, TTL: time.Second}, nil); err != nil {
				w.Errorf("at moment %d: the session is there: %v", e.at, err)
			}
		}
		w.pass(5 * time.Second)
	})
}

// TestAmendAtEachTakeover: a claim is amended while its session is taken over by
// another server at each moment: the amendment is made once, and nothing is lost.
func TestAmendAtEachTakeover(t *testing.T) {
	sweep(t, func(w *world, e *trap) {
		at := e.at
		e.at = -1
		held := w.holds(`{"path":"db","mode":"shared","as":"me","expected":"1h"}`)
		e.calls.Store(0)
		e.at = at
		e.do = func() {
			s := lockkeeper.Session{ID: held.Ref.Session, TTL: 30 * time.Second, Named: []uint64{1}}
			_, err := e.Engine.Attach(w.Context(), s, nil)
			var refusal *lockkeeper.Error
			if errors.As(err, &refusal) {
				s.Epoch = refusal.Epoch
			}
			if _, err := e.Engine.Attach(w.Context(), s, nil); err != nil {
				w.Errorf("at moment %d: %v", at, err)
			}
		}
		a := w.want(w.ask("PATCH", held.header.Get("Location"), `{"mode":"exclusive","priority":2}`), 200, "")
		if a.State != lockkeeper.Held || a.Grants[0].Mode != lockkeeper.ModeExclusive || a.Priority != 2 || a.As != "me" {
			w.Errorf("at moment %d: %s", at, a.text)
		}
		e.at = -1
		w.want(w.ask("DELETE", held.header.Get("Location"), ""), 204, "")
		if !w.free() {
			w.Errorf("at moment %d: something is left", at)
		}
	})
}
