package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// Answers of an engine that has lost its memory since are no grants, though the
// session was attached anew under the same number: the engine began to count again.
func TestAnswersOfAnEarlierLife(t *testing.T) {
	for _, late := range []string{"claim db", "renew"} {
		t.Run(late, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { answeredLate(t, late) }) })
	}
}

// answeredLate has the answer to one call, which tells that db is held, arrive when
// the engine has been started again and db is held by somebody else.
func answeredLate(t *testing.T, late string) {
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	g := lockkeeper.Guarantees{Name: "net", Features: lockkeeper.AllFeatures, Reach: lockkeeper.OnNetwork}
	k, k2 := keeper.New(g, clock), keeper.New(g, clock)
	w := &wire{Engine: k, deaf: true}
	open := func(w *wire, id string) *lockkeeper.Client {
		return lockkeeper.New(w, lockkeeper.BootClock(clock), lockkeeper.SessionID(id))
	}
	c, before, after := open(w, "a"), open(&wire{Engine: k}, "b"), open(&wire{Engine: k2}, "b")
	must(t)(c.Lock(background, "x"))
	first := must(t)(before.Lock(background, "db"))
	if late == "claim db" {
		first.Release(background)
	}
	stands, goOn := make(chan struct{}), make(chan struct{})
	w.set(func() {
		w.before = func(_ context.Context, call string, _ func()) error {
			if call == "renew" && late == call {
				first.Release(background)
			}
			return nil
		}
		w.after = func(_ context.Context, call string) error {
			if call == late {
				close(stands)
				<-goOn // whoever asked stands still meanwhile
			}
			return nil
		}
	})
	done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
	<-stands
	k.Close()
	w.set(func() { w.Engine, w.before, w.after = k2, nil, nil })
	must(t)(c.Lock(background, "y")) // for which the session is attached
	held := must(t)(after.Lock(background, "db"))
	close(goOn)
	time.Sleep(time.Second)
	select {
	case o := <-done:
		t.Errorf("db is held twice: %v, %v", o.hold, o.err)
	default:
		held.Release(background)
		o := <-done
		must(t)(o.hold, o.err)
	}
	for _, client := range []*lockkeeper.Client{c, before, after} {
		client.Close()
	}
	k2.Close()
}
