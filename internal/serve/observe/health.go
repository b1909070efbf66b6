package observe

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of the readiness check.
const (
	probeTime  = 2 * time.Second // for the engine to answer a probe
	probeAge   = time.Second     // an answer is reused for that long
	expirySoon = 14 * 24 * time.Hour
)

// Concerns are conditions beside the engine that make a server not ready. Each may be nil.
type Concerns struct {
	Draining func() (reason string, yes bool) // as [access.Gate.Draining]
	Audit    *Audit
	Closed   func() string // as [access.Gate.Closed]
	// Expires returns when the present certificate of the server expires; the zero time without one.
	Expires func() time.Time
	// Probe makes the engine do what a change takes. Nil: it attaches and ends a session.
	Probe func(context.Context) error
	// Cluster returns the state of the cluster of which the server is a node.
	Cluster func() lockkeeper.Finding
	// Grace is how long after its start a server that was never ready is expected to become so: until then
	// that is a warning in the log, and no error.
	Grace time.Duration
	// Logger gets a line when the result of a check changes; nil logs nothing. The start of a drain
	// is logged by its caller.
	Logger *slog.Logger
}

// Health answers whether a server is alive, and whether it is ready to grant locks. The readiness
// check probes the engine, once a second at most. Health is safe for concurrent use.
type Health struct {
	engine   lockkeeper.Engine
	concerns Concerns

	mu   sync.Mutex // held during a probe: concurrent callers share its answer
	at   time.Time  // of the last probe; zero: none
	last lockkeeper.Finding
	out  chan error // the answer of the probe in flight; nil: none is

	loggedMu sync.Mutex
	logged   map[string]lockkeeper.Grade // last logged, by check
	began    time.Time
	starting map[string]bool // checks that were broken in the grace, and not fine since
	fine     map[string]bool // checks that were fine
}

// NewHealth returns the health of a server of e, which must be an engine without a policy.
func NewHealth(e lockkeeper.Engine, c Concerns) *Health {
	h := &Health{
		engine:   e,
		concerns: c,
		began:    time.Now(),
		logged:   make(map[string]lockkeeper.Grade),
		starting: make(map[string]bool),
		fine:     make(map[string]bool),
	}
	if h.concerns.Probe == nil {
		h.concerns.Probe = h.visit
	}
	return h
}

// Live answers 200 while the process runs.
func (h *Health) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("ok\n")) // an error means that the client has gone
	})
}

// readiness is the answer of Ready.
type readiness struct {
	Ready  bool                 `json:"ready"`
	Checks []lockkeeper.Finding `json:"checks"`
}

// Ready answers 200 if the server can grant locks, and 503 otherwise, with the checks as JSON. A
// doubtful check is only a warning.
func (h *Health) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := h.check()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !answer.Ready {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	})
}

// Changed checks the engine again in the background, because an outage has begun or ended. So the
// log shows the change without a health request.
func (h *Health) Changed() {
	go func() {
		h.mu.Lock()
		h.at = time.Time{}
		h.mu.Unlock()
		h.check()
	}()
}

// ClaimsRefused returns why the engine can grant no lock; "" if it can.
func (h *Health) ClaimsRefused() string {
	if f := h.probe(); f.Grade == lockkeeper.Broken {
		return f.Detail
	}
	return ""
}

// ready reports whether the server can grant locks.
func (h *Health) ready() bool { return h.check().Ready }

// Check returns the checks of Ready, in a fixed order.
func (h *Health) Check() []lockkeeper.Finding { return h.check().Checks }

func (h *Health) check() readiness {
	answer := readiness{Ready: true, Checks: []lockkeeper.Finding{h.probe()}}
	if h.concerns.Draining != nil {
		answer.Checks = append(answer.Checks, drainFinding(h.concerns.Draining()))
	}
	if h.concerns.Closed != nil {
		answer.Checks = append(answer.Checks, policyFinding(h.concerns.Closed()))
	}
	if h.concerns.Audit != nil {
		answer.Checks = append(answer.Checks, auditFinding(h.concerns.Audit.Err()))
	}
	if left := h.certificateLeft(); !math.IsInf(left, 0) {
		answer.Checks = append(answer.Checks, certificateFinding(time.Duration(left*float64(time.Second))))
	}
	if h.concerns.Cluster != nil {
		answer.Checks = append(answer.Checks, h.concerns.Cluster())
	}
	for _, f := range answer.Checks {
		answer.Ready = answer.Ready && f.Grade != lockkeeper.Broken
		h.logChange(f)
	}
	return answer
}

// logChange logs a check whose grade has changed.
func (h *Health) logChange(f lockkeeper.Finding) {
	if h.concerns.Logger == nil || f.Check == checkDraining {
		return
	}
	h.loggedMu.Lock()
	defer h.loggedMu.Unlock()
	if h.logStart(f) || h.logged[f.Check] == f.Grade {
		return
	}
	h.logged[f.Check] = f.Grade
	switch f.Grade {
	case lockkeeper.Fine:
		h.concerns.Logger.Info("recovered", "check", f.Check, "detail", f.Detail)
	case lockkeeper.Doubtful:
		h.concerns.Logger.Warn("doubtful", "check", f.Check, "detail", f.Detail, "remedy", f.Remedy)
	default:
		h.concerns.Logger.Error("not ready", "check", f.Check, "detail", f.Detail, "remedy", f.Remedy)
	}
}

// logStart logs a check in the grace of the start. It reports false if the check is none of a start.
func (h *Health) logStart(f lockkeeper.Finding) bool {
	switch left := h.concerns.Grace - time.Since(h.began); {
	case f.Grade != lockkeeper.Broken:
		began := h.starting[f.Check]
		h.fine[f.Check] = true
		delete(h.starting, f.Check)
		if began && f.Grade == lockkeeper.Fine {
			h.concerns.Logger.Info("ready", "check", f.Check, "detail", f.Detail)
		}
		return false
	case h.fine[f.Check] || left <= 0:
		delete(h.starting, f.Check)
		return false
	case !h.starting[f.Check]:
		h.starting[f.Check] = true
		h.concerns.Logger.Warn("not ready yet", "check", f.Check, "detail", f.Detail, "error_in", left.String())
		time.AfterFunc(left, h.Changed)
	}
	return true
}

// probe probes the engine, or returns the result of a recent probe.
func (h *Health) probe() lockkeeper.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && time.Since(h.at) < probeAge {
		return h.last
	}
	began := time.Now()
	// A hanging engine must not block callers of probe, even if it ignores its context. There is at
	// most one probe at a time.
	select {
	case <-h.out: // a late answer is out of date
		h.out = nil
	default:
	}
	if h.out == nil {
		out := make(chan error, 1)
		h.out = out
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), probeTime)
			defer cancel()
			out <- h.concerns.Probe(ctx)
		}()
	}
	timer := time.NewTimer(probeTime)
	defer timer.Stop()
	var err error
	select {
	case err = <-h.out:
		h.out = nil
	case <-timer.C:
		err = fmt.Errorf("no answer within %s", probeTime)
	}
	h.last = lockkeeper.Finding{Check: "engine", Detail: fmt.Sprintf("answered in %s",
		time.Since(began).Round(time.Microsecond))}
	if err != nil {
		h.last.Grade, h.last.Detail = lockkeeper.Broken, err.Error()
		if h.last.Remedy = "see to the disk, or the database, that keeps the locks"; h.concerns.Cluster != nil {
			h.last.Remedy = "lk cluster ls on this machine says what to do"
		}
	}
	h.at = time.Now()
	return h.last
}

// visit attaches a session and ends it. If that fails, the session ends when its TTL has passed.
func (h *Health) visit(ctx context.Context) error {
	s := lockkeeper.Session{
		ID:      "ready-" + rand.Text(),
		TTL:     2 * probeTime,
		Outlive: true,
		Label:   lockkeeper.Label{As: "readiness"},
	}
	lease, err := h.engine.Attach(ctx, s, nil)
	if err != nil {
		return err
	}
	return h.engine.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// checkDraining names the check whether the server admits new claims.
const checkDraining = "draining"

func drainFinding(reason string, yes bool) lockkeeper.Finding {
	if !yes {
		return lockkeeper.Finding{Check: checkDraining, Detail: "the server admits new claims"}
	}
	return lockkeeper.Finding{
		Check:  checkDraining,
		Grade:  lockkeeper.Broken,
		Detail: "the server admits no new claims: " + reason,
		Remedy: "send new clients elsewhere; clients that hold or wait are served to the end",
	}
}

func policyFinding(closed string) lockkeeper.Finding {
	if closed == "" {
		return lockkeeper.Finding{Check: "policy", Detail: "the policy admits clients"}
	}
	return lockkeeper.Finding{
		Check:  "policy",
		Grade:  lockkeeper.Broken,
		Detail: "nobody is admitted: " + closed,
		Remedy: "give this server what its policy needs, and start it again, or change the policy of the cluster",
	}
}

func auditFinding(err error) lockkeeper.Finding {
	if err == nil {
		return lockkeeper.Finding{Check: "audit", Detail: "the audit log is written"}
	}
	return lockkeeper.Finding{
		Check:  "audit",
		Grade:  lockkeeper.Broken,
		Detail: err.Error(),
		Remedy: "make room on its file system, or let the server make and write it; the server goes on granting locks, " +
			"and counts " +
			"the lines that are lost",
	}
}

// certificateLeft returns for how many seconds the certificate is valid; infinite without one.
func (h *Health) certificateLeft() float64 {
	if h == nil || h.concerns.Expires == nil {
		return math.Inf(1)
	}
	at := h.concerns.Expires()
	if at.IsZero() {
		return math.Inf(1)
	}
	return time.Until(at).Seconds()
}

func certificateFinding(left time.Duration) lockkeeper.Finding {
	f := lockkeeper.Finding{Check: "certificate", Detail: fmt.Sprintf("valid for %d more days", int(left.Hours())/24)}
	remedy := "replace the files; the server reads them again by itself"
	switch {
	case left <= 0:
		f.Grade, f.Detail, f.Remedy = lockkeeper.Broken, "it has expired: no client accepts it", remedy
	case left < expirySoon:
		f.Grade, f.Remedy = lockkeeper.Doubtful, remedy
	}
	return f
}
