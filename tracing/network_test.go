package tracing_test

import (
	"context"
	"net"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// A trace covers the caller, the client and the server, which grants the claim at once or after a
// wait.
func TestTraceCrossesTheNetwork(t *testing.T) {
	atServer, serverSpans := recorded()
	s := server.New(tracing.Wrap(memlock.New(), atServer), server.Options{Trace: tracing.WithParent})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Serve(listener) }()
	defer func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	atClient, clientSpans := recorded()
	dial := func() *lockkeeper.Client {
		e, err := remote.Open(t.Context(), "lk://"+listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		e.Trace(tracing.Parent)
		return lockkeeper.New(tracing.Wrap(e, atClient))
	}
	holder, waiter := dial(), dial()
	defer holder.Close()
	defer waiter.Close()

	ctx, root := atClient.Tracer("test").Start(t.Context(), "deploy")
	hold, err := holder.Lock(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	pending, err := waiter.Enqueue(ctx, lockkeeper.Exclusive("db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := pending.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	root.End()

	byFence := func(spans []sdk.ReadOnlySpan) map[string]sdk.ReadOnlySpan {
		found := map[string]sdk.ReadOnlySpan{}
		for _, s := range spans {
			if s.Name() == "lock db" {
				found[attributeOf(s, "lockkeeper.fence")] = s
			}
		}
		return found
	}
	client, there := byFence(clientSpans.Ended()), byFence(serverSpans.Ended())
	for fence, want := range map[string]uint64{"1": hold.Fence(), "2": second.Fence()} {
		c, s := client[fence], there[fence]
		if c == nil || s == nil {
			t.Fatalf("the grant with fence %d has no span at the client (%v) or at the server (%v)", want, client, there)
		}
		if c.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("fence %s: the client's span is not within the caller's", fence)
		}
		if s.Parent().SpanID() != c.SpanContext().SpanID() || s.SpanContext().TraceID() != root.SpanContext().TraceID() {
			t.Errorf("fence %s: the server's span is not within the client's", fence)
		}
	}
}
