package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// environment sets the variables of OpenTelemetry, and no others of them.
func environment(t *testing.T, values map[string]string) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv(ParentVariable, "")
	for name, value := range values {
		t.Setenv(name, value)
	}
}

// What the environment asks for is sent where it says, within the trace that it names.
func TestExport(t *testing.T) {
	var mu sync.Mutex
	var sent []byte
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		sent = append(append(sent, r.URL.Path...), body...)
	}))
	defer collector.Close()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	environment(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
		ParentVariable:                "00-" + trace + "-b7ad6b7169203331-01",
		"OTEL_SERVICE_NAME":           "deploy-bot",
	})
	if !Wanted() {
		t.Fatal("the environment asks for traces")
	}
	provider, shutdown, err := Start(t.Context(), "lk", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := provider.Tracer("test").Start(FromEnvironment(t.Context()), "lk run")
	if child := Environment(ctx); !strings.HasPrefix(child, "TRACEPARENT=00-"+trace) ||
		strings.Contains(child, "b7ad6b7169203331") {
		t.Errorf("a child gets %q, want the same trace and another span", child)
	}
	c := lockkeeper.New(tracing.Wrap(memlock.New(), provider))
	defer c.Close()
	if _, err := c.Lock(ctx, "db/test"); err != nil {
		t.Fatal(err)
	}
	span.End()
	for range 2 { // twice is no error
		if err := shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"/v1/traces", "lock db/test", "lk run", "v1.2.3", "deploy-bot"} {
		if !bytes.Contains(sent, []byte(want)) {
			t.Errorf("what was sent has no %q", want)
		}
	}
}

// Without being asked, nothing is sent, and nothing is wrong.
func TestNotWanted(t *testing.T) {
	for _, values := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		environment(t, values)
		provider, shutdown, err := Start(t.Context(), "lk", "v1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := provider.Tracer("test").Start(FromEnvironment(t.Context()), "x")
		if span.IsRecording() || Environment(ctx) != "" {
			t.Errorf("%v: a span is made", values)
		}
		if err := shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A collector that is away holds up nobody for longer than the caller says.
func TestNoCollector(t *testing.T) {
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
	provider, shutdown, err := Start(t.Context(), "lk", "v1")
	if err != nil {
		t.Fatal(err)
	}
	_, span := provider.Tracer("test").Start(t.Context(), "x")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = shutdown(ctx) // what could not be sent is lost
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A way of sending that is not there is refused, not replaced.
func TestOtherProtocol(t *testing.T) {
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
	if _, _, err := Start(t.Context(), "lk", "v1"); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("%v, want it refused", err)
	}
}
