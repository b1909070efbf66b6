// Package tracing records the wait for a lock as a span of an OpenTelemetry trace. It needs only
// the API of OpenTelemetry: a program that exports traces brings its own SDK.
//
// Package tracing never begins a trace. A claim outside of a sampled span makes no span and costs
// almost nothing.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceparent is the header field of W3C Trace Context.
const traceparent = "traceparent"

// Parent returns the span of ctx in the format of W3C Trace Context; "" without a span. A remote
// engine sends it to its server.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// WithParent returns a context within the span that text names, in the format of [Parent]. An
// invalid text is ignored.
func WithParent(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
