// Package tracing makes the wait for a lock a span of an OpenTelemetry trace. It needs
// OpenTelemetry's API alone: a program that exports traces brings its own SDK, and
// package tracing/export is for those that have none.
//
// A trace begins where the caller's does: a claim that is made outside of any span, or
// in one that is not sampled, costs next to nothing and leaves no span.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The field of W3C Trace Context, and what is written there.
const traceparent = "traceparent"

// Parent is the span that ctx is within, as W3C Trace Context writes it; "" if it is
// within none. It is what an engine sends to a server.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// WithParent returns a context within the span that the text names, as [Parent] writes
// it. A text that is not written so is of no account: then it is ctx.
func WithParent(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
