package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/otlp"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// sendTime bounds how long lk, before its exit, waits to send its traces.
const sendTime = 2 * time.Second

// tracedVerbs are the verbs that make a span.
var tracedVerbs = []string{"run", "grab", "keep", "renew", "release", "bench"}

// trace returns a context within the span of lk's caller and, if the environment configures traces,
// within a span of this run; end ends that span and sends it.
func (a *app) trace(ctx context.Context) (within context.Context, end func()) {
	ctx = otlp.FromEnvironment(ctx)
	a.traceparent = otlp.Environment(ctx)
	if len(a.args) == 0 || !slices.Contains(tracedVerbs, a.args[0]) || !otlp.Wanted() {
		return ctx, func() {}
	}
	provider, shutdown, err := otlp.Start(ctx, "lk", version())
	if err != nil {
		fmt.Fprintf(a.stderr, "lk: no traces are sent: %s\n", err)
		return ctx, func() {}
	}
	var once sync.Once
	unsent := func(err error) {
		once.Do(func() { fmt.Fprintf(a.stderr, "lk: not all traces were sent: %s\n", err) })
	}
	otlp.OnError(unsent)
	a.traced = func(e lockkeeper.Engine) lockkeeper.Engine { return tracing.Wrap(e, provider) }
	ctx, span := provider.Tracer("github.com/lockkeeper/lockkeeper/cmd/lk").Start(ctx, "lk "+a.args[0])
	a.traceparent = otlp.Environment(ctx)
	return ctx, func() {
		span.End()
		bounded, cancel := context.WithTimeout(context.Background(), sendTime)
		defer cancel()
		if err := shutdown(bounded); err != nil {
			unsent(err)
		}
	}
}

// tracing wraps e so that its calls make spans, if the environment configures traces.
func (a *app) tracing(e lockkeeper.Engine) lockkeeper.Engine {
	if server, ok := e.(lockkeeper.ServerClient); ok {
		server.Trace(tracing.Parent)
	}
	if a.traced == nil {
		return e
	}
	return a.traced(e)
}
