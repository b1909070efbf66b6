package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client sends spans to a collector by OTLP over HTTP, in protobuf. It implements otlptrace.Client.
//
// OpenTelemetry's own client for HTTP links gRPC, whose pages of HTML make the linker keep every
// method of every type: 12 MB of a command that sends no gRPC.
type client struct {
	settings
	http *http.Client
}

// Pauses between the attempts to send the same spans, unless the collector names another one.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// maxAnswer is how many bytes of an answer are read, so that the connection can be used again.
const maxAnswer = 64 << 10

func newClient(s settings) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxies of the environment
	transport.TLSClientConfig = s.tls
	return &client{settings: s, http: &http.Client{
		Transport: transport,
		// The headers may hold a secret, which is for the endpoint alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Start implements otlptrace.Client. There is no connection to make before the first spans.
func (*client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It repeats what the collector could not take for now,
// until ctx ends, which the caller bounds. Spans for a collector that can't be reached are lost. The
// answer of a collector that took only a part of the spans counts as success.
func (c *client) UploadTraces(ctx context.Context, spans []*trace.ResourceSpans) error {
	// A TracesData is encoded as an ExportTraceServiceRequest, whose package imports gRPC.
	body, err := proto.Marshal(&trace.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		body = packed.Bytes()
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		later, err := c.send(ctx, body)
		if err == nil || later < 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(max(pause, min(later, longestPause))):
		}
	}
}

// send makes one attempt. After an error, later is how long the collector asks to wait before the next
// attempt: 0 if it does not say, negative if another attempt has no use.
func (c *client) send(ctx context.Context, body []byte) (later time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return -1, err // a command that ends does not wait for a collector that is down
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 16); err == nil {
			later = time.Duration(seconds) * time.Second
		}
	default:
		if answer.StatusCode/100 == 2 {
			return 0, nil
		}
		later = -1
	}
	return later, fmt.Errorf("the collector %s answers %s", r.URL.Redacted(), answer.Status)
}
