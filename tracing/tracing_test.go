package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// recorded is a provider whose ended spans can be read.
func recorded() (*sdk.TracerProvider, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return sdk.NewTracerProvider(sdk.WithSpanProcessor(r)), r
}

func attributeOf(s sdk.ReadOnlySpan, name string) string {
	for _, a := range s.Attributes() {
		if a.Key == attribute.Key(name) {
			return a.Value.String()
		}
	}
	return "missing"
}

// A claim that waits is a span from its beginning to its grant, within its caller's.
func TestWaitIsASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorded()
		c := lockkeeper.New(tracing.Wrap(memlock.New(), provider))
		defer c.Close()
		hold, err := c.Lock(context.Background(), "db")
		if err != nil {
			t.Fatal(err)
		}
		ctx, parent := provider.Tracer("test").Start(t.Context(), "deploy")
		pending, err := c.Enqueue(ctx, lockkeeper.Shared("db/test"), lockkeeper.Permits("pool", 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := len(spans.Ended()); n != 0 {
			t.Errorf("%d spans ended before the grant", n)
		}
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := pending.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ended := spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%d spans have ended, want the one of the wait: what is outside of any span leaves none", len(ended))
		}
		s := ended[0]
		if took := s.EndTime().Sub(s.StartTime()); s.Name() != "lock db/test pool" || took != 3*time.Second {
			t.Errorf("%q took %s", s.Name(), took)
		}
		if s.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Error("its parent is not the caller's span")
		}
		for name, want := range map[string]string{
			"lockkeeper.claim": got.Ref().String(), "lockkeeper.fence": fmt.Sprint(got.Fence()), "lockkeeper.state": "held",
			"lockkeeper.modes": `["shared","permits"]`,
		} {
			if is := attributeOf(s, name); is != want {
				t.Errorf("%s is %s, want %s", name, is, want)
			}
		}
		if events := s.Events(); len(events) != 1 || events[0].Name != "waiting" {
			t.Errorf("its events are %v", events)
		}
	})
}

// A refusal, a cancellation and a Leave end the span of the wait.
func TestSpanEndsWithTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorded()
		e := tracing.Wrap(memlock.New(), provider)
		c := lockkeeper.New(e)
		defer c.Close()
		if _, err := c.Lock(context.Background(), "x"); err != nil {
			t.Fatal(err)
		}
		ctx, parent := provider.Tracer("test").Start(t.Context(), "deploy")
		defer parent.End()
		check := func(reason string) {
			t.Helper()
			synctest.Wait()
			ended := spans.Ended()
			spans.Reset()
			if len(ended) != 1 || attributeOf(ended[0], "lockkeeper.reason") != reason {
				t.Errorf("%d spans ended, want one with the reason %s: %v", len(ended), reason, ended)
			}
		}
		if _, err := c.TryLock(ctx, "x"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Fatal(err)
		}
		check("timed out")
		short, cancel := context.WithCancel(ctx)
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if _, err := c.Lock(short, "x"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		check("cancelled")
		lease, err := e.Attach(ctx, lockkeeper.Session{ID: "other", TTL: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := lockkeeper.Want{
			ID:      1,
			Wait:    lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}},
		}
		if _, err := e.Claim(ctx, lease.Key, want); err != nil {
			t.Fatal(err)
		}
		if err := e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		check("cancelled")
		if lease, err = e.Attach(ctx, lockkeeper.Session{ID: "dead", TTL: time.Second}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Claim(ctx, lease.Key, want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		check("expired")
		if _, err := e.Claim(ctx, lease.Key, want); !errors.Is(err, lockkeeper.ErrSession) {
			t.Fatal(err)
		}
		if ended := spans.Ended(); len(ended) != 1 || !strings.Contains(ended[0].Status().Description, "session") {
			t.Errorf("a claim that failed: %v", ended)
		}
		spans.Reset()
		if lease, err = e.Attach(ctx, lockkeeper.Session{ID: "dead", TTL: time.Minute}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Claim(ctx, lease.Key, want); err != nil {
			t.Fatal(err)
		}
		if n := len(spans.Ended()); n != 0 {
			t.Errorf("%d spans ended of a claim that waits", n)
		}
	})
}

// An upgrade that waits is a span too.
func TestUpgradeIsASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorded()
		c := lockkeeper.New(tracing.Wrap(memlock.New(), provider))
		defer c.Close()
		ctx, parent := provider.Tracer("test").Start(t.Context(), "deploy")
		defer parent.End()
		one, _ := c.Acquire(ctx, lockkeeper.Shared("x"))
		two, err := c.Acquire(ctx, lockkeeper.Shared("x"))
		if err != nil {
			t.Fatal(err)
		}
		spans.Reset()
		go func() {
			time.Sleep(2 * time.Second)
			two.Close()
		}()
		if err := one.Upgrade(ctx); err != nil {
			t.Fatal(err)
		}
		ended := spans.Ended()
		if len(ended) != 1 || ended[0].EndTime().Sub(ended[0].StartTime()) != 2*time.Second ||
			attributeOf(ended[0], "lockkeeper.fence") != fmt.Sprint(one.Fence()) {
			t.Errorf("%d spans: %v", len(ended), ended)
		}
	})
}

// Spans that never end by themselves are bounded.
func TestOpenSpansAreBounded(t *testing.T) {
	provider, spans := recorded()
	e := tracing.Wrap(memlock.New(), provider)
	ctx, parent := provider.Tracer("test").Start(t.Context(), "deploy")
	defer parent.End()
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const most, more = 10_000, 50
	for id := uint64(1); id <= 1+most+more; id++ {
		_, err := e.Claim(ctx, lease.Key, lockkeeper.Want{
			ID:      id,
			Wait:    lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(spans.Ended()); n != 1+more { // the first is granted
		t.Errorf("%d spans have ended, want %d", n, 1+more)
	}
}

// The text of Parent names the same span after WithParent.
func TestParent(t *testing.T) {
	provider, _ := recorded()
	ctx, span := provider.Tracer("test").Start(t.Context(), "a")
	text := tracing.Parent(ctx)
	want := fmt.Sprintf("00-%s-%s-01", span.SpanContext().TraceID(), span.SpanContext().SpanID())
	if text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if again := tracing.Parent(tracing.WithParent(context.Background(), text)); again != text {
		t.Errorf("%q came out as %q", text, again)
	}
	for _, wrong := range []string{"", "x", "00-0-0-01", "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) +
		"-01", strings.Repeat("y", 5000)} {
		if ctx := tracing.WithParent(context.Background(), wrong); trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%q names a span", wrong)
		}
	}
	if text := tracing.Parent(context.Background()); text != "" {
		t.Errorf("outside of any span: %q", text)
	}
}

// BenchmarkWrap is a lock and a release: without tracing, and with tracing that samples no span.
func BenchmarkWrap(b *testing.B) {
	for _, kind := range []string{"plain", "untraced", "unsampled", "sampled"} {
		b.Run(kind, func(b *testing.B) {
			e, ctx := memlock.New(), context.Background()
			switch kind {
			case "untraced":
				e = tracing.Wrap(e, noop.NewTracerProvider())
			case "unsampled":
				p := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
				e = tracing.Wrap(e, p)
				ctx, _ = p.Tracer("test").Start(ctx, "x")
			case "sampled":
				p := sdk.NewTracerProvider()
				e = tracing.Wrap(e, p)
				ctx, _ = p.Tracer("test").Start(ctx, "x")
			}
			c := lockkeeper.New(e)
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				hold, err := c.Lock(ctx, "db/test")
				if err != nil {
					b.Fatal(err)
				}
				if err := hold.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
