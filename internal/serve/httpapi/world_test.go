package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// A world is an engine with servers and a client, all in one bubble of fake time:
// connections are pipes.
type world struct {
	*testing.T
	engine lockkeeper.Engine
	apis   []*API
	dials  []chan net.Conn
	client *http.Client
}

// inMemory runs a test with n servers of one memlock. A client chooses among them
// by the host: server0, server1.
func inMemory(t *testing.T, n int, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, engine: memlock.New()}
		defer w.engine.Close()
		for range n {
			w.serve()
		}
		transport := &http.Transport{DialContext: w.dial}
		w.client = &http.Client{Transport: &witness{t, theDocument(t), transport}}
		defer transport.CloseIdleConnections()
		test(w)
	})
}

// serve begins another server of the engine.
func (w *world) serve() { w.serveBy(nil) }

// serveBy is serve by other protocols than HTTP/1.
func (w *world) serveBy(p *http.Protocols) {
	api := New(access.New(w.engine, nil, access.Options{}), Options{Version: "v1"})
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	s := api.Server()
	s.Protocols = p
	w.apis, w.dials = append(w.apis, api), append(w.dials, l.conns)
	go s.Serve(l)
	w.Cleanup(func() { api.stop(); s.Close() })
}

func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	i := 0
	if strings.HasPrefix(address, "server1") {
		i = 1
	}
	here, there := net.Pipe()
	select {
	case w.dials[i] <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	lockkeeper.Status
	ttl     time.Duration
	Type    string
	Detail  string
	blocked []lockkeeper.Blocker
}

// ask sends a request to server0 and reads the answer. Headers are "Name: value".
func (w *world) ask(method, path, body string, headers ...string) answer {
	w.Helper()
	a, err := w.try(w.Context(), "server0", method, path, body, headers...)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// try sends a request to a server, and may fail.
func (w *world) try(ctx context.Context, host, method, path, body string, headers ...string) (answer, error) {
	var a answer
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, from)
	if err != nil {
		return a, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answered, err := w.client.Do(r)
	if err != nil {
		return a, err
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(answered.Body)
	a.status, a.header, a.text = answered.StatusCode, answered.Header, string(text)
	if err != nil || len(text) == 0 {
		return a, err
	}
	var more struct {
		TTL     float64              `json:"ttl"`
		Type    string               `json:"type"`
		Detail  string               `json:"detail"`
		Blocked []lockkeeper.Blocker `json:"blocked_by"`
	}
	if err := json.Unmarshal(text, &more); err != nil {
		return a, nil // not JSON
	}
	a.ttl, a.Type, a.Detail, a.blocked = time.Duration(more.TTL*float64(time.Second)), strings.TrimPrefix(more.Type,
		problemType), more.Detail, more.Blocked
	if a.Type == "" && strings.Contains(a.text, `"claim"`) && !strings.Contains(a.text, `"claims"`) {
		err = json.Unmarshal(text, &a.Status)
	}
	return a, err
}

// want fails the test unless the answer has the status, and the type if it is a problem.
func (w *world) want(a answer, status int, kind string) answer {
	w.Helper()
	if a.status != status || a.Type != kind {
		w.Fatalf("%d %s, want %d %s: %s", a.status, a.Type, status, kind, a.text)
	}
	return a
}

// holds makes a claim that is granted at once.
func (w *world) holds(body string, headers ...string) answer {
	w.Helper()
	return w.want(w.ask("POST", "/v1/claims", body, headers...), 201, "")
}

// state is how the engine has a claim; 0 if it does not know it.
func (w *world) state(ref lockkeeper.Ref) lockkeeper.State {
	w.Helper()
	st, err := solo.Look(w.Context(), w.engine, ref)
	if err != nil {
		w.Fatal(err)
	}
	return st.State
}

// free reports whether nothing is held or waits in the engine.
func (w *world) free() bool {
	w.Helper()
	for range w.engine.List(w.Context(), lockkeeper.Query{}) {
		return false
	}
	return true
}

// idle lets time go by for one goroutine of a bubble.
func idle(d time.Duration) { time.Sleep(d) }

// pass lets time go by until all is quiet. It is for one goroutine.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A said is one server-sent event.
type said struct{ event, id, data string }

// listen reads a stream of events until it ends. Comments come as events without a name.
func (w *world) listen(ctx context.Context, path string, headers ...string) <-chan said {
	w.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://server0"+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answered, err := w.client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	if answered.StatusCode != 200 {
		w.Fatalf("%s: %d %s", path, answered.StatusCode, readAll(w.T, answered))
	}
	to := make(chan said, 1000)
	go func() {
		defer answered.Body.Close()
		defer close(to)
		var s said
		lines := bufio.NewScanner(answered.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				s.event = value
			case "id":
				s.id = value
			case "data":
				s.data = value
			case "":
				if s != (said{}) {
					to <- s
				}
				s = said{}
			}
		}
	}()
	return to
}

func readAll(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return string(text)
}
