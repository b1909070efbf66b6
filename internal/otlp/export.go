// Package export sends the traces of a program of ours to a collector, by OTLP over
// HTTP. It is apart from package tracing, so that programs that trace with an SDK of
// their own don't get a second one.
package export

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// ParentVariable names the environment variable in which a command finds the span that
// it runs in.
const ParentVariable = "TRACEPARENT"

// Wanted reports whether the environment asks for traces: OTEL_EXPORTER_OTLP_ENDPOINT
// or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, and neither OTEL_SDK_DISABLED nor
// OTEL_TRACES_EXPORTER=none says otherwise.
func Wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Start begins to export traces of the service, if the environment asks for it; else
// the provider makes no spans, and costs nothing. The environment variables of
// OpenTelemetry say where to, how, and what share is sampled. shutdown sends what is
// left until its ctx ends; it must be called, and may be called more than once.
//
// A collector that can't be reached holds up nobody: spans wait within a bound, and
// then are dropped. What the environment has wrong is an ErrInvalid.
func Start(ctx context.Context, service, version string) (provider trace.TracerProvider,
	shutdown func(context.Context) error, err error) {
	if !Wanted() {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	if p := protocol(); p != "" && p != "http/protobuf" {
		return nil, nil, lockkeeper.Invalid("OTEL_EXPORTER_OTLP_PROTOCOL=%s: traces are sent by http/protobuf alone", p)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, lockkeeper.Invalid("traces can't be sent as the OTEL_ variables say: %v", err)
	}
	// What the environment says of the service goes before what the program says.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version)), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithFromEnv())
	if err != nil {
		return nil, nil, lockkeeper.Invalid("OTEL_RESOURCE_ATTRIBUTES can't be read: %v", err)
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return p, p.Shutdown, nil
}

// OnError has tell be told of traces that could not be sent, in the place of a line on
// stderr. It counts for the whole process; the latest call does.
func OnError(tell func(error)) { otel.SetErrorHandler(otel.ErrorHandlerFunc(tell)) }

// protocol is by which the environment wants traces sent.
func protocol() string {
	if p := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"); p != "" {
		return p
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
}

// FromEnvironment returns a context within the span that TRACEPARENT names, if it names
// one.
func FromEnvironment(ctx context.Context) context.Context {
	return tracing.WithParent(ctx, os.Getenv(ParentVariable))
}

// Environment is the variable by which a child learns the span that ctx is within, as
// "TRACEPARENT=…"; "" if it is within none.
func Environment(ctx context.Context) string {
	parent := tracing.Parent(ctx)
	if parent == "" {
		return ""
	}
	return fmt.Sprintf("%s=%s", ParentVariable, parent)
}
