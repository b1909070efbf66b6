package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
)

// renewal is a time after which a client has begun to renew, and that call is still in flight if it hangs.
const renewal = ttl/3 + time.Second

// A durable engine outlives its restarts, after which sessions have to resume.
type durable struct {
	t      *testing.T
	folder string
	engine lockkeeper.Engine
	wires  []*wire
}

// withDurable runs a test with such an engine, in a bubble.
func withDurable(t *testing.T, test func(t *testing.T, d *durable)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &durable{t: t, folder: t.TempDir()}
		d.restart()
		test(t, d)
		d.engine.Close()
	})
}

// restart ends the engine and opens it again. The wires lead to it from then on.
func (d *durable) restart() {
	d.t.Helper()
	if d.engine != nil {
		d.engine.Close()
	}
	e, err := disklock.Open(d.t.Context(), d.folder)
	if err != nil {
		d.t.Fatal(err)
	}
	d.engine = e
	for _, w := range d.wires {
		w.set(func() { w.Engine = e })
	}
}

// open returns a client that reaches the engine over a wire, whose restarts it learns of by its next call.
func (d *durable) open(id string) (*lockkeeper.Client, *wire) {
	w := &wire{Engine: d.engine}
	d.wires = append(d.wires, w)
	return lockkeeper.New(w, lockkeeper.SessionID(id)), w
}

// claims returns how many claims of a session the engine has.
func (d *durable) claims(session string) (n int) {
	d.t.Helper()
	for s, err := range d.engine.List(background, lockkeeper.Query{Session: session}) {
		if err != nil {
			d.t.Fatal(err)
		}
		if s.State != lockkeeper.Ended {
			n++
		}
	}
	return n
}

// hang lets no call of that name return before its context ends. It arrives if the test says so.
func hang(w *wire, name string, arrives bool) {
	w.set(func() {
		w.before = func(ctx context.Context, call string, deliver func()) error {
			if call != name {
				return nil
			}
			if arrives {
				deliver()
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
}

// closeThrough closes the client. Calls that hang still do; the next ones get through.
func closeThrough(t *testing.T, c *lockkeeper.Client, w *wire) {
	t.Helper()
	w.set(func() { w.before = nil })
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %s", took)
	}
}

// The engine restarted, and the client has not resumed its session. Close ends the hold and the wait at the
// engine, and grants nothing.
func TestCloseAfterRestartOfTheEngine(t *testing.T) {
	for name, meanwhile := range map[string]func(w *wire){
		"unnoticed":            func(*wire) {},
		"Attach gets lost":     func(w *wire) { hang(w, "attach", false); time.Sleep(renewal) },
		"its answer gets lost": func(w *wire) { hang(w, "attach", true); time.Sleep(renewal) },
	} {
		t.Run(name, func(t *testing.T) {
			withDurable(t, func(t *testing.T, d *durable) {
				a, wa := d.open("a")
				b, _ := d.open("b")
				defer b.Close()
				must(t)(a.Lock(background, "db"))
				other := must(t)(b.Lock(background, "queue"))
				waiting := began(func() (*lockkeeper.Hold, error) { return a.Lock(background, "queue") })
				synctest.Wait()
				d.restart()
				meanwhile(wa)
				if name == "unnoticed" {
					other.Release(background) // the wait of a would be granted if a resumed it
				}
				if n := d.claims("a"); n != 2 {
					t.Fatalf("the engine has %d claims of the session, want 2", n)
				}
				ctx, cancel := context.WithCancel(background)
				granted := grants(ctx, d.engine, "queue")
				closeThrough(t, a, wa)
				if n := d.claims("a"); n > 0 {
					t.Errorf("the engine still has %d claims of the session", n)
				}
				wantErr(t, (<-waiting).err, lockkeeper.ErrNotAcquired, lockkeeper.Cancelled)
				cancel()
				if n := <-granted; n > 0 {
					t.Errorf("Close was granted %d claims", n)
				}
			})
		})
	}
}

// grants counts the grants of a path to session a until ctx ends.
func grants(ctx context.Context, e lockkeeper.Engine, path lockkeeper.Path) <-chan int {
	counted := make(chan int, 1)
	go func() {
		n := 0
		for s := range e.List(ctx, lockkeeper.Query{Meets: path, Session: "a", Follow: true}) {
			if s.State == lockkeeper.Held {
				n++
			}
		}
		counted <- n
	}()
	synctest.Wait()
	return counted
}

// Close says so if it can't attach the session that it has to leave.
func TestCloseThatCannotAttach(t *testing.T) {
	withDurable(t, func(t *testing.T, d *durable) {
		a, wa := d.open("a")
		must(t)(a.Lock(background, "db"))
		d.restart()
		hang(wa, "attach", false)
		time.Sleep(renewal)
		start := time.Now()
		wantErr(t, a.Close(), lockkeeper.ErrUnavailable)
		if took := time.Since(start); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("Close took %s, want 5s", took)
		}
	})
}

// Close does not end the claims of another client that took the session over while this one could not
// attach it.
func TestCloseLeavesASessionThatWasTakenOver(t *testing.T) {
	withDurable(t, func(t *testing.T, d *durable) {
		a, wa := d.open("s")
		b, _ := d.open("s")
		defer b.Close()
		must(t)(a.Lock(background, "db"))
		d.restart()
		hang(wa, "attach", true)
		wa.set(func() { wa.loseHints = true })
		time.Sleep(renewal)
		h := must(t)(b.Lock(background, "db"))
		closeThrough(t, a, wa)
		if d.claims("s") != 1 || h.Err() != nil {
			t.Errorf("TWO HOLDERS are possible: the engine has %d claims of b, which holds: %v", d.claims("s"), h.Err())
		}
	})
}

// A client that lost its session closes at once if it had no claim.
func TestCloseWithoutClaims(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		must(t)(c.Lock(background, "a")).Release(background)
		f.with(func() {
			f.key.Epoch++
			f.loseRequest = func(ctx context.Context, call string, n int) error {
				if call == "attach" {
					return errCut
				}
				return nil
			}
		})
		time.Sleep(ttl / 2)
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %s", err, time.Since(start))
		}
	})
}

// Close says so if the engine does not answer the Leave after an Attach that was in flight.
func TestCloseWithoutAnswerAfterAttachInFlight(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		gate := make(chan struct{})
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "attach" {
				<-gate
			}
			return nil
		}
		f.loseRequest = func(_ context.Context, call string, _ int) error {
			if call == "leave" {
				return errCut
			}
			return nil
		}
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "a") })
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(gate)
		wantErr(t, <-closed, lockkeeper.ErrUnavailable, errCut)
		<-done
	})
}
