package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// engineRestart is an engine that loses its memory when the test restarts it.
type engineRestart struct {
	first, second *keeper.Keeper
	clock         func() time.Duration
	clients       []*lockkeeper.Client
}

// withRestart runs a test with such an engine, in a bubble.
func withRestart(t *testing.T, test func(t *testing.T, r *engineRestart)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() time.Duration { return time.Since(start) }
		g := lockkeeper.Guarantees{Name: "net", Features: lockkeeper.TableFeatures, Reach: lockkeeper.OnNetwork}
		r := &engineRestart{first: keeper.New(g, clock), second: keeper.New(g, clock), clock: clock}
		test(t, r)
		for _, c := range r.clients {
			c.Close()
		}
		r.first.Close()
		r.second.Close()
	})
}

// open returns a client that reaches the engine over w.
func (r *engineRestart) open(w *wire, id string) *lockkeeper.Client {
	c := lockkeeper.New(w, lockkeeper.BootClock(r.clock), lockkeeper.SessionID(id))
	r.clients = append(r.clients, c)
	return c
}

// restart ends the first engine. The wires lead to the second one from then on.
func (r *engineRestart) restart(wires ...*wire) {
	r.first.Close()
	for _, w := range wires {
		w.set(func() { w.Engine = r.second })
	}
}

// An answer that was sent before the engine lost its memory grants nothing, although the session
// has the same epoch again: the engine counts from the start.
func TestAnswerFromBeforeEngineRestartGrantsNothing(t *testing.T) {
	for _, call := range []string{"claim db", "renew"} {
		t.Run(call, func(t *testing.T) {
			withRestart(t, func(t *testing.T, r *engineRestart) { answerAfterRestart(t, r, call) })
		})
	}
}

// answerAfterRestart delays the answer to one call, which says that db is held, until the engine
// has restarted and another client holds db.
func answerAfterRestart(t *testing.T, r *engineRestart, delayed string) {
	w := &wire{Engine: r.first, loseHints: true}
	c, before, after := r.open(w, "a"), r.open(&wire{Engine: r.first}, "b"), r.open(&wire{Engine: r.second}, "b")
	must(t)(c.Lock(background, "x"))
	first := must(t)(before.Lock(background, "db"))
	if delayed == "claim db" {
		first.Release(background)
	}
	answered, deliver := make(chan struct{}), make(chan struct{})
	w.set(func() {
		w.before = func(_ context.Context, call string, _ func()) error {
			if call == "renew" && delayed == call {
				first.Release(background)
			}
			return nil
		}
		w.after = func(_ context.Context, call string) error {
			if call == delayed {
				close(answered)
				<-deliver
			}
			return nil
		}
	})
	done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
	<-answered
	w.set(func() { w.before, w.after = nil, nil })
	r.restart(w)
	must(t)(c.Lock(background, "y")) // attaches the session again
	held := must(t)(after.Lock(background, "db"))
	close(deliver)
	time.Sleep(time.Second)
	select {
	case o := <-done:
		t.Errorf("TWO HOLDERS of db: %v, %v", o.hold, o.err)
	default:
		held.Release(background)
		o := <-done
		must(t)(o.hold, o.err)
	}
}

// A claim that waited at the engine is sent again after the restart and granted, although other
// claims of the client were answered after it.
func TestWaitingClaimIsSentAgainAfterEngineRestart(t *testing.T) {
	withRestart(t, func(t *testing.T, r *engineRestart) {
		w := &wire{Engine: r.first}
		c, b := r.open(w, "a"), r.open(&wire{Engine: r.first}, "b")
		must(t)(b.Lock(background, "db"))
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
		synctest.Wait()
		for range 3 {
			h := must(t)(c.Lock(background, "x"))
			if err := h.Release(background); err != nil {
				t.Fatal(err)
			}
		}
		r.restart(w)
		o := <-done
		must(t)(o.hold, o.err)
	})
}

// The engine counts changes from the start after a restart, so the statuses of a claim that is sent
// again have lower numbers than the client knows. Its grant must not be overlooked.
func TestGrantWithLowerChangeAfterEngineRestart(t *testing.T) {
	withRestart(t, func(t *testing.T, r *engineRestart) {
		w, wb := &wire{Engine: r.first}, &wire{Engine: r.first}
		c, b := r.open(w, "a"), r.open(wb, "b")
		for range 20 { // the counters of the first engine rise
			h := must(t)(b.Lock(background, "db"))
			h.Release(background)
		}
		must(t)(b.Lock(background, "db"))
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
		synctest.Wait()
		r.restart(w, wb)
		wb.set(func() { wb.before = func(context.Context, string, func()) error { return errCut } }) // b never returns
		select {
		case o := <-done:
			must(t)(o.hold, o.err)
		case <-time.After(10 * time.Minute):
			t.Error("db is free, and its waiter has not noticed its grant in ten minutes")
		}
		wb.set(func() { wb.before = nil })
	})
}

// A claim that is sent again after the restart and refused ends.
func TestWaitingClaimRefusedAfterEngineRestartEnds(t *testing.T) {
	withRestart(t, func(t *testing.T, r *engineRestart) {
		w := &wire{Engine: r.first}
		c, b := r.open(w, "a"), r.open(&wire{Engine: r.first}, "b")
		must(t)(b.Lock(background, "db"))
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
		synctest.Wait()
		r.restart(w)
		w.set(func() {
			w.before = func(_ context.Context, call string, _ func()) error {
				if call == "claim db" {
					return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota}
				}
				return nil
			}
		})
		select {
		case o := <-done:
			wantErr(t, o.err, lockkeeper.ErrDenied)
		case <-time.After(10 * time.Minute):
			t.Error("refused, and its caller still waits")
		}
	})
}
