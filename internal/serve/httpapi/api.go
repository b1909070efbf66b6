package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// What a request may bring, and for how long a connection may be idle or slow.
const (
	mostBody      = 64 << 10
	ownBody       = 8 << 10 // a longer body takes room of all arriving bodies and frames
	mostHeader    = 16 << 10
	mostURL       = 8 << 10
	headerTimeout = 10 * time.Second // to send the header
	bodyTimeout   = 10 * time.Second // and the body
	writeTimeout  = 10 * time.Second // to take the answer, and each event of a stream
	plainTimeout  = 30 * time.Second // for all that a handler of Options does
	idleTimeout   = 2 * time.Minute  // of a connection between two requests
)

// Options of an API. The zero value is fine.
type Options struct {
	Logger *slog.Logger // nil: nothing is logged
	// of the server, for /v1/server and lk drain --unless-version
	Version string
	// what POST /v1/drain does beside draining the gate, once, such as to end when nothing is left;
	// nil: refused as unsupported
	Drain func(reason string)
	About func(ctx context.Context) (map[string]any, error) // what GET /v1/server tells beside the version; nil: nothing
	// further routes, by pattern: "GET /healthz"; without a method they take all
	Open    map[string]http.Handler
	Private map[string]http.Handler // likewise, for whoever is let in: "GET /metrics"
	Hosts   []string                // allowed Host names; nil: any name if tokens are needed
	// a context within the span that a request's Traceparent names; nil: of no account
	Trace func(context.Context, string) context.Context
}

// An API answers HTTP requests out of a gate's engine. It is safe for concurrent use.
type API struct {
	gate     *access.Gate
	options  Options
	logger   *slog.Logger
	routes   []served
	origin   *http.CrossOriginProtection
	sessions *solo.Cache
	feed     *feed
	began    time.Time

	stopping chan struct{} // closed when polls and streams should end
	stop     func()        // closes it
}

// A route is one method of one resource. All that the API answers to stands in the
// table of routes; the OpenAPI document is held against it by a test.
type route struct {
	pattern string // "POST /v1/claims/{claim}/renew"; "{path...}" in the end takes the rest, with its slashes
	body    bool   // it may bring a body; a request to any other that brings one is refused
	handle  func(*call) error
}

// A call is one request that was let in.
type call struct {
	api      *API
	w        http.ResponseWriter
	r        *http.Request
	pass     *access.Pass
	own      lockkeeper.Engine
	received time.Time // what the answer tells of time counts from here, at the latest (R12)
	answered bool      // the header is written
}

// engine is the gate's engine as the caller may use it.
func (c *call) engine() lockkeeper.Engine { return c.own }

// New returns an API to the gate. It keeps nothing that it could not do without:
// any number of APIs, in any number of processes, may serve one engine.
func New(g *access.Gate, o Options) *API {
	a := &API{
		gate: g, options: o, logger: o.Logger, origin: http.NewCrossOriginProtection(), began: time.Now(),
		sessions: solo.NewCache(), stopping: make(chan struct{}),
	}
	a.stop = sync.OnceFunc(func() {
		close(a.stopping)
		a.feed.close()
	})
	if a.logger == nil {
		a.logger = slog.New(slog.DiscardHandler)
	}
	a.feed = newFeed(g)
	for _, r := range allRoutes() {
		a.routes = append(a.routes, serve(r))
	}
	a.add(o.Open, true)
	a.add(o.Private, false)
	return a
}

// add adds routes that are not the API's own.
func (a *API) add(handlers map[string]http.Handler, open bool) {
	for pattern, handler := range handlers {
		s := serve(route{pattern: pattern, body: true})
		s.plain, s.open = handler, open
		a.routes = append(a.routes, s)
	}
}

// allRoutes is the table of routes.
func allRoutes() []route {
	return slices.Concat(claimRoutes, operatorRoutes, eventRoutes, grabRoutes, terraformRoutes, documentRoutes,
		frontRoutes)
}

// Server returns a server of the API that has all its bounds set. The caller sets
// what concerns its listener, such as TLSConfig, and closes it. When it shuts down,
// the polls are answered as they stand and the streams end.
func (a *API) Server() *http.Server {
	cs := newConnections(a.stopping)
	s := &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
		// No WriteTimeout, since polls and streams are long: each write has its own.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  cs.begin,
		ConnState:                    cs.state,
	}
	s.RegisterOnShutdown(a.stop)
	return s
}

// isStopping reports whether polls and streams should end.
func (a *API) isStopping() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{api: a, w: w, r: r, received: time.Now()}
	if r.ContentLength != 0 {
		// Also of a body that nobody reads: the library takes in the rest of it.
		// a writer without deadlines is a test's
		_ = http.NewResponseController(w).SetReadDeadline(c.received.Add(bodyTimeout))
	}
	if connection := connectionOf(r); connection != nil && !connection.isKnown() {
		w.Header().Set("Connection", "close") // until a client authenticates
	}
	if err := a.serve(c); err != nil {
		c.fail(err)
	}
}

// serve finds the route of c, lets its caller in, and has it handled.
func (a *API) serve(c *call) error {
	if err := a.check(c.r); err != nil {
		return err
	}
	found, err := a.route(c.r)
	if err != nil {
		return err
	}
	if !found.open {
		if c.pass, err = a.admit(c.r); err != nil {
			return err
		}
		if err := c.letIn(); err != nil {
			return err
		}
		c.own = c.pass.Engine()
	}
	if found.plain != nil {
		// a writer without deadlines is a test's
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(plainTimeout))
		found.plain.ServeHTTP(c.w, c.r)
		return nil
	}
	if parent := c.r.Header.Get("Traceparent"); parent != "" && a.options.Trace != nil {
		c.r = c.r.WithContext(a.options.Trace(c.r.Context(), parent))
	}
	if !found.body && c.r.ContentLength != 0 {
		return lockkeeper.Invalid("%s takes no body: leave it out", found.pattern)
	}
	return found.handle(c)
}

// letIn counts the connection for the caller, and keeps it open for further requests.
func (c *call) letIn() error {
	connection := connectionOf(c.r)
	if connection == nil {
		return nil
	}
	if err := connection.letIn(c.pass.Usage()); err != nil {
		return err
	}
	c.w.Header().Del("Connection")
	return nil
}

// served is a route, taken to pieces.
type served struct {
	route
	method   string
	segments []string
	open     bool         // it needs no credentials
	plain    http.Handler // of Options.Open or Private
}

func serve(r route) served {
	method, path, ok := strings.Cut(r.pattern, " ")
	if !ok {
		method, path = "", r.pattern
	}
	return served{route: r, method: method, segments: strings.Split(path, "/")[1:], open: openRoutes[r.pattern]}
}

// openRoutes reveal nothing about locks, so they need no credentials.
var openRoutes = map[string]bool{"GET /openapi.json": true, "GET /": true}

// matches reports whether the segments of a URL are those of s, and gives r their values.
func (s *served) matches(segments []string, r *http.Request) bool {
	for i, want := range s.segments {
		name, variable := strings.CutPrefix(want, "{")
		name, rest := strings.CutSuffix(strings.TrimSuffix(name, "}"), "...")
		switch {
		case i >= len(segments), !variable && segments[i] != want:
			return false
		case rest:
			r.SetPathValue(name, strings.Join(segments[i:], "/"))
			return true
		case variable:
			r.SetPathValue(name, segments[i])
		}
	}
	return len(segments) == len(s.segments)
}

// route finds the route of a request. The URL is taken as it is: a mux would
// redirect from what it holds for another spelling of a path.
func (a *API) route(r *http.Request) (*served, error) {
	segments := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var allowed []string
	for i := range a.routes {
		s := &a.routes[i]
		if !s.matches(segments, r) {
			continue
		}
		if s.method == "" || s.method == r.Method || s.method == http.MethodGet && r.Method == http.MethodHead {
			return s, nil
		}
		allowed = append(allowed, s.method)
	}
	if allowed != nil {
		return nil, methodError(r.Method, allowed)
	}
	return nil, &refusal{problem: problem{
		name: "no-such-resource", Status: http.StatusNotFound, Title: "no such resource",
		Detail: "nothing answers to " + quoted(r.URL.Path) + ": see /openapi.json for what does",
	}}
}
