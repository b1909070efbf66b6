// Package otlp sends the traces of the command lk to a collector, by OTLP over HTTP. It is separate
// from package tracing, so that a program with an SDK of its own does not link a second one.
package otlp

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// ParentVariable is the environment variable that tells a command the span in which it runs.
const ParentVariable = "TRACEPARENT"

// Wanted reports whether the environment asks for traces: OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and neither OTEL_SDK_DISABLED=true nor
// OTEL_TRACES_EXPORTER=none is.
func Wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Start exports traces of the service if the environment asks for it. Otherwise the provider makes
// no spans and costs nothing. The environment variables of OpenTelemetry name the endpoint, the
// protocol and the sampling. The caller must call shutdown, which sends the remaining spans until
// its ctx ends; it may call it more than once.
//
// An unreachable collector blocks no caller: a bounded number of spans waits, and further spans are
// dropped. A wrong environment variable is an ErrInvalid.
func Start(ctx context.Context, service, version string) (provider trace.TracerProvider,
	shutdown func(context.Context) error, err error) {
	if !Wanted() {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	s, err := fromEnvironment()
	if err != nil {
		return nil, nil, lockkeeper.Invalid("traces can't be sent as the environment says: %v", err)
	}
	exporter, err := otlptrace.New(ctx, newClient(s))
	if err != nil {
		return nil, nil, err
	}
	// The environment overrides the attributes of the program.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version)), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithFromEnv())
	if err != nil {
		return nil, nil, lockkeeper.Invalid("OTEL_RESOURCE_ATTRIBUTES can't be read: %v", err)
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return p, p.Shutdown, nil
}

// OnError sets the function that gets the errors of sending traces, instead of a line on stderr. It
// applies to the whole process.
func OnError(report func(error)) { otel.SetErrorHandler(otel.ErrorHandlerFunc(report)) }

// FromEnvironment returns a context within the span that TRACEPARENT names, if it names one.
func FromEnvironment(ctx context.Context) context.Context {
	return tracing.WithParent(ctx, os.Getenv(ParentVariable))
}

// Environment returns the variable that tells a child process the span of ctx, as "TRACEPARENT=…";
// "" without a span.
func Environment(ctx context.Context) string {
	parent := tracing.Parent(ctx)
	if parent == "" {
		return ""
	}
	return fmt.Sprintf("%s=%s", ParentVariable, parent)
}
