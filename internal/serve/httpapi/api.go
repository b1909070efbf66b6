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
	"github.com/lockkeeper/lockkeeper/internal/serve/page"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Limits of requests and connections.
const (
	maxBody       = 64 << 10
	freeBody      = 8 << 10 // a longer body counts against limits.Identity.TakeRoom
	maxHeader     = 16 << 10
	maxURL        = 8 << 10
	headerTimeout = 10 * time.Second // to send the header
	bodyTimeout   = 10 * time.Second // and the body
	writeTimeout  = 10 * time.Second // to read the answer, or an event of a stream
	plainTimeout  = 30 * time.Second // for a handler of Options, to answer
	idleTimeout   = 2 * time.Minute  // of a connection between two requests
)

// Options of an API. The zero value is fine.
type Options struct {
	Logger *slog.Logger // nil: nothing is logged
	// of the server, for /v1/server and lk drain --unless-version
	Version string
	// what POST /v1/drain does, once, after it has drained the gate, such as to end the process
	// when no claim is left; nil: POST /v1/drain is unsupported
	Drain func(reason string)
	About func(ctx context.Context) (map[string]any, error) // further fields of GET /v1/server; nil: none
	// Cluster returns the cluster that the server belongs to; nil: it belongs to none
	Cluster func() lockkeeper.ClusterStatus
	// further routes, by pattern: "GET /healthz"; a pattern without a method matches all
	Open    map[string]http.Handler
	Private map[string]http.Handler // the same, for authenticated clients: "GET /metrics"
	Hosts   []string                // allowed Host names; nil: any name if tokens are needed
	// Trace returns a context within the span that a request's Traceparent names; nil: ignore it
	Trace func(context.Context, string) context.Context
}

// An API answers HTTP requests from a gate's engine. It is safe for concurrent use.
type API struct {
	gate     *access.Gate
	options  Options
	logger   *slog.Logger
	routes   []served
	origin   *http.CrossOriginProtection
	sessions *solo.Cache
	browsers *page.Sessions // of browsers that logged in
	feed     *feed
	history  *History
	began    time.Time

	stopping chan struct{} // closed when polls and streams should end
	stop     func()        // closes it
}

// A route is one method of one resource. A test compares the table of routes with the OpenAPI
// document.
type route struct {
	pattern string // "POST /v1/claims/{claim}/renew"; "{path...}" at the end matches the rest, with slashes
	body    bool   // a body is allowed
	handle  func(*call) error
}

// A call is one request.
type call struct {
	api      *API
	w        http.ResponseWriter
	r        *http.Request
	pass     *access.Pass
	own      lockkeeper.Engine
	browser  *page.Session // that the request belongs to; nil: none
	received time.Time     // durations in the answer count from here (R12)
	answered bool          // the header is written
	variable string        // the value of the variable of its route

	connection *connection // nil if its server is not the API's own
}

// engine returns the gate's engine with the rights of the caller.
func (c *call) engine() lockkeeper.Engine { return c.own }

// New returns an API to the gate. Any number of APIs, in any number of processes, may serve one
// engine: what an API stores are caches.
func New(g *access.Gate, o Options) *API {
	a := &API{
		gate: g, options: o, logger: o.Logger, origin: http.NewCrossOriginProtection(), began: time.Now(),
		sessions: solo.NewCache(), browsers: page.NewSessions(), stopping: make(chan struct{}),
	}
	a.stop = sync.OnceFunc(func() {
		close(a.stopping)
		a.feed.close()
	})
	if a.logger == nil {
		a.logger = slog.New(slog.DiscardHandler)
	}
	a.feed, a.history = newFeed(g), newHistory()
	for _, r := range slices.Concat(allRoutes(), browserRoutes) {
		a.routes = append(a.routes, serve(r))
	}
	a.add(o.Open, true)
	a.add(o.Private, false)
	return a
}

// History returns the history of changes. An observe.Watch can report to it.
func (a *API) History() *History { return a.history }

// add adds routes of Options.
func (a *API) add(handlers map[string]http.Handler, open bool) {
	for pattern, handler := range handlers {
		s := serve(route{pattern: pattern, body: true})
		s.plain, s.open = handler, open
		a.routes = append(a.routes, s)
	}
}

// allRoutes returns the table of routes, without those that only the page uses.
func allRoutes() []route {
	return slices.Concat(claimRoutes, operatorRoutes, eventRoutes, grabRoutes, terraformRoutes, documentRoutes,
		frontRoutes)
}

// Server returns a server of the API with all its limits. The caller sets what concerns the
// listener, such as TLSConfig, and closes the server. When the server shuts down, polls are
// answered with the present state, and streams end.
func (a *API) Server() *http.Server {
	cs := newConnections(a.stopping)
	s := &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
		// No WriteTimeout, because polls and streams are long: each write has its own.
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
		// This bounds unread bodies, too: net/http reads their rest. It fails only in tests.
		_ = http.NewResponseController(w).SetReadDeadline(c.received.Add(bodyTimeout))
	}
	if c.connection = connectionOf(r); c.connection != nil && !c.connection.isKnown() {
		w.Header().Set("Connection", "close") // until a client authenticates
	}
	if err := a.serve(c); err != nil {
		c.fail(err)
	}
}

// serve finds the route of c, authenticates the caller, and calls the handler.
func (a *API) serve(c *call) error {
	if err := a.check(c.r); err != nil {
		return err
	}
	found, err := a.route(c)
	if err != nil {
		return err
	}
	if !found.open {
		if c.pass, err = a.admit(c); err != nil {
			return err
		}
		if err := c.attribute(); err != nil {
			return err
		}
		c.own = c.pass.Engine()
	}
	if found.plain != nil {
		if !found.open {
			if err := c.pass.Named(); err != nil {
				return err
			}
		}
		// It fails only in tests.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(plainTimeout))
		found.plain.ServeHTTP(c.w, c.r)
		return nil
	}
	if a.options.Trace != nil {
		if parent := c.r.Header.Get("Traceparent"); parent != "" {
			c.r = c.r.WithContext(a.options.Trace(c.r.Context(), parent))
		}
	}
	if !found.body && c.r.ContentLength != 0 {
		return lockkeeper.Invalid("%s takes no body", found.pattern)
	}
	return found.handle(c)
}

// attribute counts the connection for the caller, and keeps it open for further requests.
func (c *call) attribute() error {
	if c.connection == nil {
		return nil
	}
	if err := c.connection.attribute(c.pass.Usage()); err != nil {
		return err
	}
	delete(c.w.Header(), "Connection")
	return nil
}

// served is a parsed route.
type served struct {
	route
	method   string
	segments []string     // "{name}" matches one segment, "{name...}" all that follow; at most one of them
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
var openRoutes = map[string]bool{
	"GET /openapi.json": true, "GET /": true, "GET /page/{file}": true, "POST /page/session": true,
}

// matches reports whether a path is that of s, and returns the value of its variable.
func (s *served) matches(path string) (variable string, ok bool) {
	for i, want := range s.segments {
		segment, rest, more := strings.Cut(path, "/")
		switch {
		case strings.HasSuffix(want, "...}"):
			return path, true
		case want[:min(1, len(want))] == "{":
			variable = segment
		case segment != want:
			return "", false
		}
		if last := i == len(s.segments)-1; more == last {
			return "", false
		}
		path = rest
	}
	return variable, true
}

// route finds the route of a request. It does not use http.ServeMux, which redirects paths that it
// would spell differently.
func (a *API) route(c *call) (*served, error) {
	r := c.r
	path := strings.TrimPrefix(r.URL.Path, "/")
	for i := range a.routes {
		s := &a.routes[i]
		if s.method == "" || s.method == r.Method || s.method == http.MethodGet && r.Method == http.MethodHead {
			if variable, ok := s.matches(path); ok {
				c.variable = variable
				return s, nil
			}
		}
	}
	var allowed []string
	for i := range a.routes {
		if _, ok := a.routes[i].matches(path); ok {
			allowed = append(allowed, a.routes[i].method)
		}
	}
	if allowed != nil {
		return nil, methodError(r.Method, allowed)
	}
	return nil, &refusal{problem: problem{
		name: "no-such-resource", Status: http.StatusNotFound, Title: "no such resource",
		Detail: "there is no resource at " + quoted(r.URL.Path) + ": /openapi.json lists all",
	}}
}
