package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/gctune"
	"github.com/lockkeeper/lockkeeper/internal/otlp"
	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/httpapi"
	"github.com/lockkeeper/lockkeeper/internal/serve/observe"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
	"github.com/lockkeeper/lockkeeper/tracing"
)

// drainTime bounds how long a stopping server goes on to answer calls that it has received.
const drainTime = 10 * time.Second

// stopsSilently is the time after which a stopping server says what it waits for.
const stopsSilently = time.Second

// A service is all that lk serve runs around one engine: its listeners, access control, audit log,
// metrics, health and traces.
type service struct {
	app     *app
	options *serveOptions
	log     *slog.Logger

	engine    lockkeeper.Engine  // the served engine, without access control
	node      *quorumlock.Engine // the same if it is a node of a cluster; else nil
	operators net.Listener       // of lk cluster; nil without a node
	gate      *access.Gate
	policy    policies
	audit     *observe.Audit // nil without --audit
	metrics   *observe.Metrics
	watch     *observe.Watch // nil without HTTP and audit log: it costs a busy server a fifth of its throughput
	health    *observe.Health
	wire      *server.Server
	web       *http.Server // nil if HTTP is off
	tls       *tls.Config  // nil: in the clear
	webTLS    *tls.Config  // likewise, of HTTP
	cert      *pki.Certificate
	traces    func(context.Context) error // sends the remaining traces

	life    context.Context // of the goroutines in beside; close cancels it
	kill    context.CancelFunc
	beside  sync.WaitGroup
	once    sync.Once  // starts awaitEmpty
	drained chan error // receives the result of awaitEmpty
}

// serve listens, opens the engine, and serves it until a signal stops it.
func (a *app) serve(ctx context.Context, o *serveOptions) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	s := &service{app: a, options: o, log: o.logger(a), drained: make(chan error, 1)}
	s.life, s.kill = context.WithCancel(ctx)
	defer s.kill()
	policy, err := s.credentials()
	if err != nil {
		return &exit{code: exitUsage, say: err}
	}
	listeners, err := o.onWire().all(ctx, a)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	var pages []net.Listener
	if on := o.onHTTP(); on.text != httpOff {
		if pages, err = on.all(ctx, a); err != nil {
			return err
		}
		defer closeAll(pages)
	}
	if err := s.open(ctx, policy, listeners[0]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	gctune.Tune()
	failed := s.run(hup, listeners, pages)
	a.sayReady(s, listeners, pages)
	return s.awaitEnd(signals, failed)
}

// credentials reads the certificates, the tokens and the policy.
func (s *service) credentials() (*access.Policy, error) {
	o := s.options
	policy, err := o.policy()
	if err != nil || o.tlsCert == "" {
		return policy, err
	}
	if s.cert, err = pki.LoadCertificate(o.tlsCert, o.tlsKey, s.log); err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	var clients *pki.Authorities
	if o.clientCA != "" {
		if clients, err = pki.LoadAuthorities(o.clientCA, s.log); err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
	}
	s.tls, s.webTLS = pki.ServerTLS(s.cert, clients), pki.ServerTLS(s.cert, clients, "h2", "http/1.1")
	return policy, nil
}

// open opens the engine, and builds everything around it. Clients will connect to l.
func (s *service) open(ctx context.Context, policy *access.Policy, l net.Listener) error {
	o := s.options
	var err error
	if o.audit != "" {
		if s.audit, err = observe.OpenAudit(o.audit, ownerOf(policy)); err != nil {
			return fmt.Errorf("--audit: %w", err)
		}
	}
	e, err := s.openEngine(ctx, l)
	if err != nil {
		s.audit.Close()
		return fmt.Errorf("%s: %w%s", lockkeeper.RedactURL(o.engine), err, o.another(err))
	}
	if n, ok := e.(lockkeeper.Noticer); ok {
		for _, f := range n.Notices() {
			s.log.Warn(f.Detail, "remedy", f.Remedy)
		}
	}
	s.health = observe.NewHealth(e, s.concerns())
	s.metrics = observe.NewMetrics(observe.Sources{
		Version:     version(),
		Connections: s.connections,
		Sessions:    s.sessions,
		Draining:    s.draining,
		Health:      s.health,
		Audit:       s.audit,
		Cluster:     s.cluster(),
	})
	s.metrics.Engine(e)
	if n, ok := e.(lockkeeper.RefusalNotifier); ok {
		n.NotifyRefusal(s.health.Changed)
	}
	otlp.OnError(func(err error) { s.log.Warn("not all traces were sent", "error", err) })
	provider, shutdown, err := otlp.Start(ctx, "lockkeeper", version())
	if err != nil {
		return errors.Join(err, e.Close(), s.audit.Close())
	}
	s.traces = shutdown
	traced := e // with all its abilities, which a traced engine does not have
	if otlp.Wanted() {
		traced = tracing.Wrap(e, provider)
	}
	s.engine = s.metrics.Counted(traced)
	s.openGate(policy)
	if s.audit != nil || o.onHTTP().text != httpOff {
		s.watch = observe.NewWatch(e, s.metrics, s.audit, s.log)
	}
	s.wire = s.wireServer(e)
	if o.onHTTP().text != httpOff {
		api := httpapi.New(s.gate, httpapi.Options{
			Logger: s.log, Hosts: o.hostNames, Version: version(), Drain: s.drain, About: s.aboutHTTP, Cluster: s.cluster(),
			Open:    map[string]http.Handler{"GET /healthz": s.health.Live(), "GET /readyz": s.health.Ready()},
			Private: map[string]http.Handler{"GET /metrics": s.metrics.Handler()}, Trace: tracing.WithParent,
		})
		s.watch.Notify(api.History())
		s.web = api.Server()
		s.web.TLSConfig = s.webTLS
	}
	return nil
}

// concerns are what makes this server ready or not, beside its engine.
func (s *service) concerns() observe.Concerns {
	c := observe.Concerns{
		Draining: s.draining,
		Audit:    s.audit,
		Expires:  s.expires,
		Cluster:  s.clusterConcern(),
		Grace:    s.startGrace(),
		Logger:   s.log,
	}
	if s.node != nil {
		c.Probe, c.Closed = s.node.Probe, func() string { return s.gate.Closed() }
	}
	return c
}

// wireServer returns the server of lk:// for the engine e.
func (s *service) wireServer(e lockkeeper.Engine) *server.Server {
	o := server.Options{
		Logger: s.log, Name: "lk " + version(), Gate: s.gate, About: s.aboutDraining, Drain: s.drain,
		Trace: tracing.WithParent,
	}
	o.Cluster, _ = e.(lockkeeper.ClusterNode)
	return server.New(s.engine, o)
}

// openEngine opens the served engine.
func (s *service) openEngine(ctx context.Context, l net.Listener) (lockkeeper.Engine, error) {
	folder := quorumlock.FolderOf(s.options.engine)
	if folder == "" {
		return s.app.open(ctx, s.options.engine)
	}
	node, err := s.openNode(ctx, folder, l)
	if err != nil {
		return nil, err // not a nil node as an engine
	}
	s.node = node
	return node, nil
}

// another returns a hint for the error that another process uses the directory of the locks; else
// "".
func (o *serveOptions) another(err error) string {
	if !forOneProcess(o.engine) || !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), " is in use by ") {
		return ""
	}
	return " (mostly that process is a server: use it, or add --data DIR for another one)"
}

// run starts to serve. The channel receives the error of a listener that fails.
func (s *service) run(hup <-chan os.Signal, listeners, pages []net.Listener) <-chan error {
	failed := make(chan error, len(listeners)+len(pages)+2) // the others are of serveOperators
	for _, l := range listeners {
		if s.tls != nil {
			l = tls.NewListener(l, s.tls)
		}
		s.beside.Go(func() {
			if err := s.wire.Serve(l); err != nil {
				failed <- err
			}
		})
	}
	for _, l := range pages {
		s.beside.Go(func() {
			serve := s.web.Serve
			if s.tls != nil {
				serve = func(l net.Listener) error { return s.web.ServeTLS(l, "", "") }
			}
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	if s.watch != nil {
		s.beside.Go(func() { s.watch.Run(s.life) })
	}
	s.beside.Go(func() { newPolicyWatch(s.options, s.setPolicy, s.log).run(s.life, s.hangups(hup)) })
	s.serveOperators(failed)
	s.audit.Started(s.options.engine)
	return failed
}

// hangups reopens the audit log at each HUP, and then passes it on.
func (s *service) hangups(hup <-chan os.Signal) <-chan os.Signal {
	passed := make(chan os.Signal, 1)
	s.beside.Go(func() {
		for {
			select {
			case <-s.life.Done():
				return
			case sig := <-hup:
				if err := s.audit.Reopen(); err != nil {
					s.log.Error("the audit log can't be reopened: lines go to the previous file, and the server retries each second",
						"error", err)
				}
				select {
				case passed <- sig:
				default: // nobody reads rules, or one HUP that is not read yet will do
				}
			}
		}
	})
	return passed
}

// awaitEnd waits for a signal, a failure, or the end of a drain. Then it stops the server and lets
// calls finish.
func (s *service) awaitEnd(signals <-chan os.Signal, failed <-chan error) error {
	var why error
	reason := "the server is stopping"
	select {
	case why = <-failed:
		if _, coded := errors.AsType[*exit](why); !coded {
			why = &exit{code: exitUnavailable, say: why}
		}
		reason = "the server has failed"
	case sig := <-signals:
		s.log.Info("stopping", "signal", sig.String())
	case why = <-s.drained:
		s.log.Info("stopping: it is drained")
		if why != nil {
			why = &exit{code: exitUnavailable, say: fmt.Errorf("draining: %w", why)}
		}
	}
	notifySystemd("STOPPING=1", s.log)
	s.audit.Stopped(reason)
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	s.wire.Drain(reason)
	ended := make(chan error, 1)
	go func() { ended <- s.shutdown(ctx) }()
	slow := time.NewTimer(stopsSilently)
	defer slow.Stop()
	for {
		select {
		case sig := <-signals:
			s.log.Warn("ended at once", "signal", sig.String())
			return &exit{code: exitSignal + supervise.SignalNumber(sig)}
		case <-slow.C:
			s.log.Info("waits until the calls of clients are answered; another signal ends it at once",
				"connections", s.wire.Connections(), "at_most", drainTime.String(), "state", s.state())
			continue
		case err := <-ended:
			if errors.Is(err, context.DeadlineExceeded) {
				s.log.Warn("connections were cut off: not all was answered in time", "time", drainTime)
			}
		}
		s.log.Info("stopped")
		return why
	}
}

// state says whether calls can be answered.
func (s *service) state() string {
	if s.node != nil {
		return string(s.node.Cluster().State)
	}
	return "serves " + s.options.engine
}

// shutdown stops both servers at the same time. Each answers the calls that it has received.
func (s *service) shutdown(ctx context.Context) error {
	web := make(chan error, 1)
	go func() {
		var err error
		if s.web != nil {
			err = s.web.Shutdown(ctx)
			s.web.Close()
		}
		web <- err
	}()
	err := s.wire.Shutdown(ctx)
	return errors.Join(err, <-web)
}

// close stops the goroutines in beside, and closes the engine. Call it after shutdown.
func (s *service) close() error {
	s.kill()
	s.beside.Wait()
	err := s.engine.Close()
	if err != nil {
		err = fmt.Errorf("%s: %w", s.options.engine, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	if failed := s.traces(ctx); failed != nil {
		s.log.Warn("not all traces were sent", "error", failed)
	}
	if closed := s.audit.Close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("--audit: %w", closed))
	}
	return err
}

// drain carries out lk drain: the process ends when no claims are left that count, see served.
func (s *service) drain(reason string) {
	s.wire.Drain(reason)
	s.once.Do(func() {
		s.beside.Go(func() {
			err := awaitEmpty(s.life, s.gate, s.engine, s.served(), s.log)
			if s.life.Err() == nil {
				s.drained <- err
			}
		})
	})
}

// about returns the state of the server. Its counts may be a moment old.
func (s *service) about(ctx context.Context) lockkeeper.ServerState {
	state := lockkeeper.ServerState{
		Version: version(), Sessions: int64(s.sessions()), ClaimsRefused: s.health.ClaimsRefused(),
	}
	if s.node != nil {
		now := s.node.Cluster()
		state.Cluster = &now
	}
	if s.watch != nil {
		held, waiting := s.watch.Counts()
		state.Held, state.Waiting = int64(held), int64(waiting)
		return state
	}
	for st, err := range s.engine.List(ctx, lockkeeper.Query{Brief: true, Stale: true}) {
		switch {
		case err != nil:
			return state
		case st.State == lockkeeper.Held:
			state.Held++
		case st.State == lockkeeper.Waiting:
			state.Waiting++
		}
	}
	return state
}

// cluster returns what describes the cluster of the served node; nil without one.
func (s *service) cluster() func() lockkeeper.ClusterStatus {
	if s.node == nil {
		return nil
	}
	return s.node.Cluster
}

// aboutHTTP is about, for HTTP.
func (s *service) aboutHTTP(ctx context.Context) (map[string]any, error) {
	state := s.about(ctx)
	return map[string]any{
		"held":        state.Held,
		"waiting":     state.Waiting,
		"sessions":    state.Sessions,
		"connections": s.connections(),
	}, ctx.Err()
}

func (s *service) draining() (string, bool) { return s.gate.Draining() }
func (s *service) connections() int         { return s.wire.Connections() }
func (s *service) sessions() int            { return s.wire.Sessions() }

// expires returns the expiry of the present certificate; zero without TLS.
func (s *service) expires() time.Time {
	if s.cert == nil {
		return time.Time{}
	}
	return s.cert.Expires()
}

// ownerOf returns a function from the id of a session at the engine to its identity; nil if clients
// do not authenticate.
func ownerOf(p *access.Policy) func(session string) string {
	if p == nil {
		return nil
	}
	return access.Owner
}

// acted records acts of operators and denied calls, in metrics and audit log.
func (s *service) acted(act access.Act) {
	s.metrics.Act(act)
	s.audit.Act(act)
	if errors.Is(act.Err, lockkeeper.ErrDenied) {
		// At a higher level unauthenticated clients could fill a disk. The audit log is bounded.
		s.log.Debug("denied", "identity", act.Identity, "from", act.From, "verb", act.Verb, "path", act.Path, "error",
			act.Err)
	}
}
