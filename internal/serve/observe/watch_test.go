package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// familiesOf returns the metrics as Prometheus reads them.
func familiesOf(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(m.registry.Text()))
	return must(t, families, err)
}

// value is what the registry has under a name, and a label's value if one is given:
// of a histogram its sum and count.
func value(t *testing.T, m *Metrics, name string, labels ...string) string {
	t.Helper()
	for _, f := range familiesOf(t, m) {
		if f.GetName() != name {
			continue
		}
		for _, metric := range f.GetMetric() {
			if !hasLabels(metric, labels) {
				continue
			}
			switch {
			case metric.Histogram != nil:
				return fmt.Sprintf("%g in %d", metric.Histogram.GetSampleSum(), metric.Histogram.GetSampleCount())
			case metric.Counter != nil:
				return fmt.Sprint(metric.Counter.GetValue())
			}
			return fmt.Sprint(metric.Gauge.GetValue())
		}
	}
	return "missing"
}

func hasLabels(m *dto.Metric, values []string) bool {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.GetValue())
	}
	for _, v := range values {
		if !strings.Contains(strings.Join(all, "\n")+"\n", v+"\n") {
			return false
		}
	}
	return true
}

// expect compares values with "name label: value" lines.
func expect(t *testing.T, m *Metrics, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		what, want, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found {
			continue
		}
		words := strings.SplitN(what, " ", 2)
		if got := value(t, m, "lockkeeper_"+words[0], words[1:]...); got != want {
			t.Errorf("%s is %s, want %s", what, got, want)
		}
	}
}

// watched is an engine in memory with metrics, in a synctest bubble.
func watched(t *testing.T, e lockkeeper.Engine) *Metrics {
	m := NewMetrics(Sources{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	w := NewWatch(e, m, nil, nil)
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return m
}

func client(t *testing.T, e lockkeeper.Engine) *lockkeeper.Client {
	began := time.Now() // the boot clock knows nothing of a bubble's time
	c := lockkeeper.New(e, lockkeeper.SessionTTL(30*time.Second),
		lockkeeper.BootClock(func() time.Duration { return time.Since(began) }))
	t.Cleanup(func() { c.Close() })
	return c
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// seen collects what a watch notifies.
type seen struct{ texts []string }

func (s *seen) Begin() { s.texts = append(s.texts, "begin") }
func (s *seen) Changed(st *lockkeeper.Status) {
	s.texts = append(s.texts, fmt.Sprint(st.As, " ", st.State))
}

// TestNotifiedChanges: a watch notifies of what changes while it follows, and not of what it finds.
func TestNotifiedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		ctx, cancel := context.WithCancel(t.Context())
		operator, one, other := client(t, e), client(t, e), client(t, e)
		hold, err := one.Lock(ctx, "db", lockkeeper.WithAs("old"))
		must(t, hold, err)
		must(t, e, operator.Freeze(ctx, "cold", time.Hour, lockkeeper.Label{As: "operator"}))
		time.Sleep(time.Minute)
		var changes seen
		w := NewWatch(e, nil, nil, nil)
		w.Notify(&changes)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		synctest.Wait()
		waiting, err := other.Enqueue(ctx, lockkeeper.Exclusive("db"),
			lockkeeper.WithAs("new"), lockkeeper.WithPriority(1), lockkeeper.WithSteal())
		must(t, waiting, err)
		synctest.Wait()
		time.Sleep(2 * gathering)
		must(t, hold, hold.Release(ctx))
		time.Sleep(2 * gathering)
		must(t, e, operator.Thaw(ctx, "cold", lockkeeper.Label{}))
		time.Sleep(2 * gathering)
		cancel()
		<-done
		const want = "begin, new waiting, old held, old ended, new held,  ended" // the end of a freeze has no label
		if got := strings.Join(changes.texts, ", "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Waits and holds are counted with how long they took.
func TestHoldsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := memlock.New()
		m := watched(t, e)
		one, other := client(t, e), client(t, e)
		hold, err := one.Lock(ctx, "db/test")
		must(t, hold, err)
		waiting, err := other.Enqueue(ctx, lockkeeper.Shared("db"))
		must(t, waiting, err)
		time.Sleep(7 * time.Second)
		expect(t, m, `
			holds: 1
			waiting: 1
			oldest_hold_seconds: 7
			oldest_wait_seconds: 7
			grants_total exclusive: 1
			wait_seconds: 0 in 1
			hold_seconds: 0 in 0`)
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
		second, err := waiting.Wait(ctx)
		must(t, second, err)
		if _, err := one.TryLock(ctx, "db"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		expect(t, m, `
			holds: 1
			waiting: 0
			oldest_hold_seconds: 5
			grants_total shared: 1
			wait_seconds: 7 in 2
			hold_seconds: 7 in 1
			waits_ended_total timed out: 1
			holds_ended_total released: 1`)
		must(t, 0, second.Release(ctx))
		synctest.Wait()
		expect(t, m, `
			holds: 0
			hold_seconds: 12 in 2
			oldest_hold_seconds: 0
			expiry_lag_seconds: 0`)
	})
}

// A hold that came and went unseen is a grant and an end.
func TestUnseenHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		m := watched(t, e)
		c := client(t, e)
		for range 100 {
			hold, err := c.Lock(t.Context(), "x")
			must(t, hold, err)
			must(t, 0, hold.Release(t.Context()))
		}
		synctest.Wait()
		expect(t, m, `
			grants_total exclusive: 100
			holds_ended_total released: 100
			hold_seconds: 0 in 100
			holds: 0`)
	})
}

// An upgrade is a grant of its own, of one hold that goes on.
func TestUpgradeIsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := memlock.New()
		m := watched(t, e)
		a, b := client(t, e), client(t, e)
		one, err := a.Acquire(ctx, lockkeeper.Shared("x"))
		must(t, one, err)
		two, err := b.Acquire(ctx, lockkeeper.Shared("x"))
		must(t, two, err)
		go func() {
			time.Sleep(3 * time.Second)
			two.Close()
		}()
		must(t, 0, one.Upgrade(ctx))
		time.Sleep(time.Second)
		must(t, 0, one.Release(ctx))
		synctest.Wait()
		expect(t, m, `
			grants_total shared: 2
			grants_total exclusive: 1
			wait_seconds: 3 in 3
			hold_seconds: 7 in 2
			holds: 0`)
	})
}

// Requests to yield are counted, and a freeze is shown while it lasts.
func TestOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := memlock.New()
		m := watched(t, e)
		c, operator := client(t, e), client(t, e)
		hold, err := c.Lock(ctx, "x")
		must(t, hold, err)
		must(t, 0, operator.Freeze(ctx, "y", time.Minute, lockkeeper.Label{}))
		must(t, 0, operator.Revoke(ctx, hold.Ref(), false, lockkeeper.Label{Note: "maintenance"}))
		synctest.Wait()
		expect(t, m, `
			freezes: 1
			asked_to_yield_total revoked: 1
			holds: 1`)
		time.Sleep(4 * time.Second)
		must(t, 0, operator.Revoke(ctx, hold.Ref(), true, lockkeeper.Label{}))
		time.Sleep(2 * time.Minute)
		expect(t, m, `
			freezes: 0
			holds: 0
			holds_ended_total revoked: 1
			hold_seconds: 4 in 1
			expiry_lag_seconds: 0`)
	})
}

// forgetful ends all following when told, as one that is too slow is ended.
type forgetful struct {
	lockkeeper.Engine
	cut chan struct{}
}

func (f *forgetful) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if !q.Follow {
		return f.Engine.List(ctx, q)
	}
	return func(yield func(lockkeeper.Status, error) bool) {
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-f.cut:
				cancel()
			case <-bounded.Done():
			}
		}()
		for st, err := range f.Engine.List(bounded, q) {
			if !yield(st, err) {
				return
			}
		}
		if ctx.Err() == nil {
			yield(lockkeeper.Status{}, lockkeeper.ErrUnavailable)
		}
	}
}

// What happens while nobody follows is made out afterwards.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := &forgetful{memlock.New(), make(chan struct{})}
		m := watched(t, e)
		c := client(t, e)
		stays, err := c.Lock(ctx, "stays")
		must(t, stays, err)
		ends, err := c.Lock(ctx, "ends")
		must(t, ends, err)
		must(t, 0, c.Freeze(ctx, "ice", time.Minute, lockkeeper.Label{}))
		synctest.Wait()
		e.cut <- struct{}{}
		synctest.Wait()
		must(t, 0, ends.Release(ctx))
		must(t, 0, c.Thaw(ctx, "ice", lockkeeper.Label{}))
		begins, err := c.Lock(ctx, "begins")
		must(t, begins, err)
		time.Sleep(10 * time.Second)
		expect(t, m, `
			watch_gaps_total: 1
			grants_total exclusive: 3
			holds_ended_total none: 1
			freezes: 0
			holds: 2`) // the engine remembers no more why it ended, since its session knows
	})
}

// What was held before the watch began is held, and was not granted by this server.
func TestHeldBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		hold, err := client(t, e).Lock(t.Context(), "x")
		must(t, hold, err)
		time.Sleep(time.Minute)
		m := watched(t, e)
		expect(t, m, `
			holds: 1
			oldest_hold_seconds: 60
			grants_total exclusive: 0`)
		time.Sleep(time.Minute)
		must(t, 0, hold.Release(t.Context()))
		synctest.Wait()
		expect(t, m, `
			holds: 0
			grants_total exclusive: 0
			hold_seconds: 120 in 1`)
	})
}

// stuck tells of a wait that is over, and never of its end.
type stuck struct{ lockkeeper.Engine }

func (stuck) List(ctx context.Context, _ lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		yield(lockkeeper.Status{Ref: lockkeeper.Ref{Session: "s", ID: 1}, State: lockkeeper.Waiting, Left: time.Second}, nil)
		<-ctx.Done()
	}
}

// An engine that ends nothing any more is found out.
func TestExpiryLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watched(t, stuck{memlock.New()})
		time.Sleep(time.Minute)
		expect(t, m, "expiry_lag_seconds: 59")
	})
}
