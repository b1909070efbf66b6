package otlp

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// answers is a collector that gives one answer after the other, and then accepts everything.
type answers struct {
	list     []*http.Response
	requests []time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	a.requests = append(a.requests, time.Now())
	if len(a.list) == 0 {
		return answer(http.StatusOK, ""), nil
	}
	next := a.list[0]
	a.list = a.list[1:]
	if next == nil {
		return nil, errors.New("connection refused")
	}
	return next, nil
}

func answer(status int, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: http.NoBody}
}

// What a collector can't take for now is sent again after a pause; what it refuses is not.
func TestRepeats(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		answers []*http.Response
		at      []time.Duration // of the attempts
		refused bool
	}{
		"taken at once":    {nil, []time.Duration{0}, false},
		"can't be reached": {[]*http.Response{nil}, []time.Duration{0}, true},
		"overloaded": {[]*http.Response{answer(503, ""), answer(429, "7"), answer(502, "0"), answer(504, "no number")},
			[]time.Duration{0, second, 8 * second, 12 * second, 20 * second}, false},
		"a pause that is too long": {[]*http.Response{answer(503, "60000")}, []time.Duration{0, longestPause}, false},
		"refused":                  {[]*http.Response{answer(400, "1")}, []time.Duration{0}, true},
		"moved":                    {[]*http.Response{answer(301, "")}, []time.Duration{0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{list: test.answers}
				c := newClient(settings{url: "http://collector/v1/traces", timeout: second})
				c.http.Transport = a
				began := time.Now()
				if err := c.UploadTraces(t.Context(), nil); (err != nil) != test.refused {
					t.Errorf("error %v, want one: %t", err, test.refused)
				}
				if len(a.requests) != len(test.at) {
					t.Fatalf("%d attempts, want %d", len(a.requests), len(test.at))
				}
				for i, at := range a.requests {
					if at.Sub(began) != test.at[i] {
						t.Errorf("attempt %d after %s, want %s", i, at.Sub(began), test.at[i])
					}
				}
			})
		})
	}
}

// The caller bounds the attempts, and learns why the last one failed.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(settings{url: "http://collector/", timeout: time.Second})
		a := &answers{}
		for range 100 {
			a.list = append(a.list, answer(http.StatusServiceUnavailable, ""))
		}
		c.http.Transport = a
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.UploadTraces(ctx, nil); err == nil || !strings.Contains(err.Error(), "answers") {
			t.Errorf("error %v, want that of the last attempt", err)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it gave up after %s", took)
		}
	})
}

// The variables of the environment decide what is sent where.
func TestSettings(t *testing.T) {
	ca := testca.New(t)
	files := ca.Server()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	var got *http.Request
	var sent trace.TracesData
	collector := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(unpacked)
		if err := proto.Unmarshal(body, &sent); err != nil {
			t.Error(err)
		}
	}))
	collector.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	collector.StartTLS()
	defer collector.Close()
	environment(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":           collector.URL + "/base/",
		"OTEL_EXPORTER_OTLP_HEADERS":            "api-key=generic",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":     "api-key=a%20secret, tenant = x,",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        ca.File,
		"OTEL_EXPORTER_OTLP_TIMEOUT":            "30000",
	})
	s, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if s.timeout != 30*time.Second {
		t.Errorf("the timeout is %s", s.timeout)
	}
	if err := newClient(s).UploadTraces(t.Context(), []*trace.ResourceSpans{{SchemaUrl: "here"}}); err != nil {
		t.Fatal(err)
	}
	if h := got.Header; got.URL.Path != "/base/v1/traces" || h.Get("Api-Key") != "a secret" || h.Get("Tenant") != "x" {
		t.Errorf("the request is %s %v", got.URL, h)
	}
	if len(sent.GetResourceSpans()) != 1 || sent.GetResourceSpans()[0].GetSchemaUrl() != "here" {
		t.Errorf("%v was sent", &sent)
	}
}

// Wrong variables are refused, and named; secrets are not shown.
func TestWrongSettings(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":           "localhost:4318",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":    "ftp://localhost",
		"OTEL_EXPORTER_OTLP_HEADERS":            "key: hush",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":     "key=%zzhush",
		"OTEL_EXPORTER_OTLP_TIMEOUT":            "10s",
		"OTEL_EXPORTER_OTLP_COMPRESSION":        "zstd",
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        "/nowhere/ca.pem",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/nowhere/cert.pem",
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY":  "/nowhere/key.pem",
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
			values[name] = value
			environment(t, values)
			_, _, err := Start(t.Context(), "lk", "v1")
			if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), name) ||
				strings.Contains(err.Error(), "hush") {
				t.Errorf("error %v, want one that names %s", err, name)
			}
		})
	}
}
