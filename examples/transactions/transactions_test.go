package transactions_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	. "github.com/lockkeeper/lockkeeper/examples/transactions"
)

var errOwn = errors.New("the application's own error")

// decisions are those of case T2.17, and what comes out of them.
var decisions = map[string]struct {
	decide func(*world) func(error) Decision[int]
	value  int
	err    error
	reason lockkeeper.Reason // of err
	done   []int             // after -1, 0 and the urgent 3, 4
}{
	"resume":           {always(Resume[int]()), 2, nil, 0, []int{1, 2}},
	"restart":          {always(Restart[int]()), 2, nil, 0, []int{-1, 0, 1, 2}},
	"replace":          {replaced, -2, nil, 0, []int{-2, -2}},
	"reject":           {always(Reject[int](nil)), 0, lockkeeper.ErrLost, lockkeeper.Stolen, nil},
	"reject by itself": {nil, 0, lockkeeper.ErrLost, lockkeeper.Stolen, nil},
	"reject with own":  {always(Reject[int](errOwn)), 0, errOwn, 0, nil},
	"no decision":      {always(Decision[int]{}), 0, ErrUndecided, 0, nil},
}

func always(d Decision[int]) func(*world) func(error) Decision[int] {
	return func(*world) func(error) Decision[int] { return func(error) Decision[int] { return d } }
}

func replaced(w *world) func(error) Decision[int] {
	return func(error) Decision[int] { return Replace(Transaction[int]{Steps: w.steps(-2, -2)}) }
}

// checkDecision fails the test unless the two transactions of case T2.17 have come out as required.
func (w *world) checkDecision(name string, low, high outcome) {
	w.Helper()
	want := decisions[name]
	if high.value != 4 || high.err != nil {
		w.Errorf("the urgent transaction: %s; want 4", high)
	}
	var e *lockkeeper.Error
	if low.value != want.value || !errors.Is(low.err, want.err) ||
		want.reason != lockkeeper.NoReason && (!errors.As(low.err, &e) || e.Reason != want.reason) {
		w.Errorf("the transaction that lost its lock: %s; want %d, %v (%s)", low, want.value, want.err, want.reason)
	}
	if name == "no decision" && (errors.Is(low.err, lockkeeper.ErrLost) || errors.As(low.err, &e)) {
		w.Errorf("%v is an error of the lock, want one of the transaction", low.err)
	}
	w.did(append([]int{-1, 0, 3, 4}, want.done...)...)
}

// TestDecisions is case T2.17 with its times: steps of 5 ms, and an urgent transaction after 6 ms.
func TestDecisions(t *testing.T) {
	for name, want := range decisions {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(w *world) {
				tx := Transaction[int]{Requests: db(1), Steps: w.steps(-1, 0, 1, 2)}
				if want.decide != nil {
					tx.OnLoss = want.decide(w)
				}
				low := start(w.Context(), w.client("low"), tx)
				<-time.After(6 * time.Millisecond)
				high := start(w.Context(), w.client("high"),
					Transaction[int]{Requests: db(2, lockkeeper.WithSteal()), Steps: w.steps(3, 4)})
				w.checkDecision(name, <-low, <-high)
				w.free(w.client("next"))
			})
		})
	}
}

// TestDecisionsOnEveryEngine is case T2.17 without times: the urgent transaction begins during the
// second step, which ends when its holder is asked to yield.
func TestDecisionsOnEveryEngine(t *testing.T) {
	for name, want := range decisions {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				begun, asked := make(chan struct{}, 9), false
				second := w.step(0, func(ctx context.Context, hold *lockkeeper.Hold) {
					if begun <- struct{}{}; !asked {
						asked = true
						awaitAsk(ctx, hold)
					}
				})
				tx := Transaction[int]{Requests: db(1), Steps: append(append(w.steps(-1), second), w.steps(1, 2)...)}
				if want.decide != nil {
					tx.OnLoss = want.decide(w)
				}
				low := start(w.Context(), w.client("low"), tx)
				<-begun
				high := start(w.Context(), w.client("high"),
					Transaction[int]{Requests: db(2, lockkeeper.WithSteal()), Steps: w.steps(3, 4)})
				w.checkDecision(name, <-low, <-high)
				w.free(w.client("next"))
			})
		})
	}
}

// awaitAsk waits until the holder is asked to yield.
func awaitAsk(ctx context.Context, hold *lockkeeper.Hold) {
	select {
	case <-hold.YieldAsked():
	case <-ctx.Done():
	}
}

// TestDecisionHasNewRequests: the requests of a decision count for the next claim. Here the
// transaction asks for its lock back.
func TestDecisionHasNewRequests(t *testing.T) {
	inMemory(t, func(w *world) {
		low := start(w.Context(), w.client("low"), Transaction[int]{Requests: db(1), Steps: w.steps(-1, 0, 1, 2),
			OnLoss: always(Resume[int](lockkeeper.WithPriority(3), lockkeeper.WithSteal()))(w)})
		<-time.After(6 * time.Millisecond)
		high := start(w.Context(), w.client("high"), Transaction[int]{Requests: db(2, lockkeeper.WithSteal()),
			Steps: w.steps(3, 4), OnLoss: always(Resume[int]())(w)})
		if l, h := <-low, <-high; l.value != 2 || l.err != nil || h.value != 4 || h.err != nil {
			w.Errorf("%s and %s, want 2 and 4", l, h)
		}
		w.did(-1, 0, 3, 1, 2, 4)
	})
}

// TestStepThatLosesItsLockIsNotDone: its context ends before the next holder begins, and after Resume
// it runs again, whatever it returned.
func TestStepThatLosesItsLockIsNotDone(t *testing.T) {
	everywhere(t, func(w *world) {
		begun, again := make(chan struct{}), false
		second := w.step(0, func(ctx context.Context, _ *lockkeeper.Hold) {
			if !again {
				again = true
				close(begun)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), lockkeeper.Stolen) {
					w.Errorf("the cause is %v, want that it was stolen", context.Cause(ctx))
				}
			}
		})
		var losses []error
		low := start(w.Context(), w.client("low"), Transaction[int]{
			Requests: db(1),
			Steps:    []Step[int]{w.step(-1, nil), second, w.step(1, nil)},
			OnLoss: func(loss error) Decision[int] {
				losses = append(losses, loss)
				return Resume[int]()
			},
		})
		<-begun
		high := start(w.Context(), w.client("high"), Transaction[int]{
			Requests: db(2, lockkeeper.WithStealAfter(100*time.Millisecond)), Steps: w.steps(3, 4)})
		if l, h := <-low, <-high; l.value != 1 || l.err != nil || h.value != 4 || h.err != nil {
			w.Errorf("%s and %s, want 1 and 4", l, h)
		}
		if len(losses) != 1 || !errors.Is(losses[0], lockkeeper.Stolen) {
			w.Errorf("lost %v, want once, stolen", losses)
		}
		w.did(-1, 3, 4, 0, 1)
	})
}

// TestErrorsOfStepsAndCallers: they end the transaction and free the lock. A claim that is not
// granted is no loss.
func TestErrorsOfStepsAndCallers(t *testing.T) {
	everywhere(t, func(w *world) {
		c := w.client("one")
		never := func(loss error) Decision[int] {
			w.Errorf("asked for a decision about %v", loss)
			return Resume[int]()
		}
		fails := func(context.Context, *lockkeeper.Hold, int) (int, error) { return 7, errOwn }
		if value, err := Run(w.Context(), c, Transaction[int]{Requests: db(0),
			Steps: []Step[int]{fails}, OnLoss: never}); value != 0 || !errors.Is(err, errOwn) {
			w.Errorf("a step that fails: %d, %v", value, err)
		}
		w.free(c)
		ctx, giveUp := context.WithCancelCause(w.Context())
		gives := w.step(1, func(ctx context.Context, _ *lockkeeper.Hold) {
			giveUp(errOwn)
			<-ctx.Done()
		})
		if _, err := Run(ctx, c, Transaction[int]{Requests: db(0), Steps: []Step[int]{gives, gives},
			OnLoss: never}); !errors.Is(err, context.Canceled) {
			w.Errorf("given up: %v", err)
		}
		w.free(c)
		held, err := c.Lock(w.Context(), "db")
		if err != nil {
			w.Fatal(err)
		}
		if _, err := Run(w.Context(), w.client("two"), Transaction[int]{Requests: db(0, lockkeeper.WithWait(0)),
			Steps: w.steps(1), OnLoss: never}); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			w.Errorf("while it is taken: %v", err)
		}
		held.Close()
	})
}

// TestNestedTransactionsRunTogether: transactions on the path that the step around them holds run at
// the same time, as their steps wait for each other. Only the outer one yields, between its steps.
func TestNestedTransactionsRunTogether(t *testing.T) {
	everywhere(t, func(w *world) {
		c := w.client("outer")
		there, back, asking := make(chan int), make(chan int), make(chan struct{})
		give := func(n int, to chan int) Step[int] {
			return func(context.Context, *lockkeeper.Hold, int) (int, error) { to <- n; return n, nil }
		}
		take := func(from chan int) Step[int] {
			return func(context.Context, *lockkeeper.Hold, int) (int, error) { return <-from, nil }
		}
		both := w.step(1, func(ctx context.Context, hold *lockkeeper.Hold) {
			close(asking)
			awaitAsk(ctx, hold)
			one := start(ctx, c, Transaction[int]{Requests: db(0), Steps: []Step[int]{give(5, there), take(back)}})
			two := start(ctx, c, Transaction[int]{Requests: db(0), Steps: []Step[int]{take(there), give(6, back)}})
			if first, second := <-one, <-two; first.value != 6 || first.err != nil || second.value != 6 || second.err != nil {
				w.Errorf("nested: %s and %s, want 6 and 6", first, second)
			}
		})
		outer := start(w.Context(), c, Transaction[int]{Requests: db(1), Steps: []Step[int]{both, w.step(2, nil)},
			OnLoss: always(Resume[int]())(w)})
		<-asking
		high := start(w.Context(), w.client("high"), Transaction[int]{Requests: db(2, lockkeeper.WithSteal()),
			Steps: w.steps(3, 4)})
		if o, h := <-outer, <-high; o.value != 2 || o.err != nil || h.value != 4 || h.err != nil {
			w.Errorf("%s and %s, want 2 and 4", o, h)
		}
		w.did(1, 3, 4, 2)
	})
}

// TestTransactionsOfTwoEnginesNest: a step under the lock of one engine runs a transaction under the
// lock of another engine. When the outer lock is lost, the inner transaction ends, too.
func TestTransactionsOfTwoEnginesNest(t *testing.T) {
	everywhere(t, func(w *world) {
		other := &world{T: w.T, open: engines["mem"](w.T)}
		outer, inner, op := w.client("outer"), other.client("inner"), w.client("operator")
		var ended outcome
		nests := func(during func(context.Context, *lockkeeper.Hold)) Step[int] {
			return w.step(1, func(ctx context.Context, _ *lockkeeper.Hold) {
				ended = <-start(ctx, inner, Transaction[int]{Requests: db(0), Steps: []Step[int]{other.step(5, during)}})
			})
		}
		if value, err := Run(w.Context(), outer, Transaction[int]{Requests: db(0),
			Steps: []Step[int]{nests(nil)}}); value != 1 || err != nil || ended.value != 5 || ended.err != nil {
			w.Errorf("%d, %v; inner: %s; want 1 and 5", value, err, ended)
		}
		begun := make(chan struct{})
		lost := start(w.Context(), outer, Transaction[int]{Requests: db(0),
			Steps: []Step[int]{nests(func(ctx context.Context, _ *lockkeeper.Hold) { close(begun); <-ctx.Done() })}})
		<-begun
		for st, err := range op.List(w.Context(), lockkeeper.Query{Meets: "db"}) {
			if err == nil {
				err = op.Revoke(w.Context(), st.Ref, true, lockkeeper.Label{})
			}
			if err != nil {
				w.Fatal(err)
			}
		}
		if o := <-lost; !errors.Is(o.err, lockkeeper.ErrLost) || !errors.Is(ended.err, context.Canceled) {
			w.Errorf("the outer one: %s; the inner one: %s; want a loss and its end", o, ended)
		}
		w.free(op)
		other.free(inner)
	})
}
