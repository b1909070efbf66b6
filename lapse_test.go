package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// endOf returns the status of a claim as another client sees it; its State says whether the claim
// has ended.
func endOf(t *testing.T, k *keeper.Keeper, ref lockkeeper.Ref) lockkeeper.Status {
	t.Helper()
	for s, err := range k.List(background, lockkeeper.Query{Ref: ref}) {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatalf("nothing is known of claim %s", ref)
	return lockkeeper.Status{}
}

// The holder's client stops one margin before the engine ends the hold, and the thief gives up
// between the two: the next claim is granted at the engine's end, not before.
func TestLapsedHoldLastsForTheMargin(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, _ := open("a")
		b, _ := open("b")
		h := must(t)(a.Lock(background, "db"))
		start := time.Now()
		thief, err := b.Enqueue(background, lockkeeper.Exclusive("db"), lockkeeper.WithPriority(1),
			lockkeeper.WithStealAfter(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		next, err := b.Enqueue(background, lockkeeper.Exclusive("db"))
		if err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Stolen)
		if took := time.Since(start); took != 5*time.Second-lockkeeper.Margin(5*time.Second) {
			t.Errorf("lost after %s, want the margin before 5s", took)
		}
		synctest.Wait()
		if err := thief.Cancel(); err != nil {
			t.Fatal(err)
		}
		if s := endOf(t, k, h.Ref()); s.State != lockkeeper.Held || !s.Lapsed {
			t.Errorf("the claim is %s, lapsed %t; want it held for the margin", s.State, s.Lapsed)
		}
		must(t)(next.Wait(background))
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the next one is granted after %s, want 5s", took)
		}
		if s := endOf(t, k, h.Ref()); s.Reason != lockkeeper.Stolen {
			t.Errorf("everybody else sees it end as %s, want stolen", s.Reason)
		}
	})
}

// A client that closes reports a lapse before it leaves, if the engine has not received it yet.
func TestCloseReportsLapses(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		h := must(t)(a.Lock(background, "db"))
		thief, err := b.Enqueue(background, lockkeeper.Exclusive("db"), lockkeeper.WithPriority(1),
			lockkeeper.WithStealAfter(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan lockkeeper.Status, 10)
		ctx, cancel := context.WithCancel(background)
		go func() {
			for s := range k.List(ctx, lockkeeper.Query{Session: "a", Follow: true}) {
				if s.State == lockkeeper.Ended {
					ends <- s
				}
			}
		}()
		synctest.Wait()
		wa.set(func() {
			wa.before = func(_ context.Context, call string, _ func()) error {
				if call == "end" {
					return errCut
				}
				return nil
			}
		})
		<-h.Done()
		synctest.Wait() // the first word is lost
		wa.set(func() { wa.before = nil })
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if s := <-ends; s.Reason != lockkeeper.Stolen {
			t.Errorf("everybody else sees it end as %s, want stolen", s.Reason)
		}
		must(t)(thief.Wait(background))
		cancel()
		synctest.Wait()
	})
}
