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

// Bounds of the question whether the server is ready.
const (
	probeTime  = 2 * time.Second // in which the engine must attach a session, and let it go
	probeAge   = time.Second     // an answer is given again for so long
	expirySoon = 14 * 24 * time.Hour
)

// Concerns are what, beside the engine, makes a server not ready. Each may be nil.
type Concerns struct {
	Draining func() (reason string, yes bool) // as [access.Gate.Draining]
	Audit    *Audit
	// Expires is when the certificate that is served now expires; the zero time if
	// there is none.
	Expires func() time.Time
	// Logger is told when what is asked for is not as it was at the last time; nil: nobody
	// is. That a server drains is not told: whoever has it drain says so.
	Logger *slog.Logger
}

// Health answers whether a server lives, and whether it is ready: whether a lock can
// be taken. For that it really attaches a session at the engine and leaves it, once a
// second at most, however often it is asked. It is safe for concurrent use.
type Health struct {
	engine   lockkeeper.Engine
	concerns Concerns

	mu   sync.Mutex // held while the engine is asked: who comes meanwhile gets that answer
	at   time.Time  // when it was asked; zero: never
	last lockkeeper.Finding
	out  chan error // the answer of a visit that is still out; nil: none is

	toldMu sync.Mutex
	told   map[string]lockkeeper.Grade // by check, as logged last
}

// NewHealth returns the health of the engine, which must not be decorated by a policy.
func NewHealth(e lockkeeper.Engine, c Concerns) *Health {
	return &Health{engine: e, concerns: c, told: make(map[string]lockkeeper.Grade)}
}

// Live answers 200 as long as the process answers at all.
func (h *Health) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("ok\n")) // whoever does not read it has gone
	})
}

// readiness is the answer of Ready.
type readiness struct {
	Ready  bool                 `json:"ready"`
	Checks []lockkeeper.Finding `json:"checks"`
}

// Ready answers 200 if a lock can be taken, and 503 if not; the JSON says what was
// looked at and what is wrong. What is doubtful only warns.
func (h *Health) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := h.look()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !answer.Ready {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // whoever does not read it has gone
	})
}

// Changed checks the engine again in the background, because its trouble has begun or ended. So the
// log shows the change without a health request.
func (h *Health) Changed() {
	go func() {
		h.mu.Lock()
		h.at = time.Time{}
		h.mu.Unlock()
		h.look()
	}()
}

// Trouble returns why no lock can be taken, apart from draining; "" if one can.
func (h *Health) Trouble() string {
	if f := h.probe(); f.Grade == lockkeeper.Broken {
		return f.Detail
	}
	return ""
}

// ready reports whether a lock can be taken.
func (h *Health) ready() bool { return h.look().Ready }

// Check returns what was looked at, in a fixed order, as Ready does.
func (h *Health) Check() []lockkeeper.Finding { return h.look().Checks }

func (h *Health) look() readiness {
	answer := readiness{Ready: true, Checks: []lockkeeper.Finding{h.probe()}}
	if h.concerns.Draining != nil {
		answer.Checks = append(answer.Checks, drainFinding(h.concerns.Draining()))
	}
	if h.concerns.Audit != nil {
		answer.Checks = append(answer.Checks, auditFinding(h.concerns.Audit.Err()))
	}
	if left := h.certificateLeft(); !math.IsInf(left, 0) {
		answer.Checks = append(answer.Checks, certificateFinding(time.Duration(left*float64(time.Second))))
	}
	for _, f := range answer.Checks {
		answer.Ready = answer.Ready && f.Grade != lockkeeper.Broken
		h.tell(f)
	}
	return answer
}

// tell logs a finding that is not as it was.
func (h *Health) tell(f lockkeeper.Finding) {
	if h.concerns.Logger == nil || f.Check == checkDraining {
		return
	}
	h.toldMu.Lock()
	defer h.toldMu.Unlock()
	if h.told[f.Check] == f.Grade {
		return
	}
	h.told[f.Check] = f.Grade
	switch f.Grade {
	case lockkeeper.Fine:
		h.concerns.Logger.Info("well again", "check", f.Check, "detail", f.Detail)
	case lockkeeper.Doubtful:
		h.concerns.Logger.Warn("doubtful", "check", f.Check, "detail", f.Detail, "remedy", f.Remedy)
	default:
		h.concerns.Logger.Error("not ready", "check", f.Check, "detail", f.Detail, "remedy", f.Remedy)
	}
}

// probe attaches a session and leaves it.
func (h *Health) probe() lockkeeper.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && time.Since(h.at) < probeAge {
		return h.last
	}
	began := time.Now()
	// An engine that hangs must not hang those who ask whether it does, even if it does
	// not look at the context; and there is never more than one visit.
	select {
	case <-h.out: // late: it says how it was then
		h.out = nil
	default:
	}
	if h.out == nil {
		out := make(chan error, 1)
		h.out = out
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), probeTime)
			defer cancel()
			out <- h.visit(ctx)
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
	h.last = lockkeeper.Finding{Check: "engine", Detail: fmt.Sprintf("attached and left a session in %s",
		time.Since(began).Round(time.Microsecond))}
	if err != nil {
		h.last.Grade, h.last.Detail = lockkeeper.Broken, err.Error()
		h.last.Remedy = "see to the disk, or the database, that keeps the locks"
	}
	h.at = time.Now()
	return h.last
}

// visit attaches a session of its own, which is left whatever happens: if not by its
// word, then when its TTL is over.
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

// checkDraining is the check that says whether new claims are taken.
const checkDraining = "draining"

func drainFinding(reason string, yes bool) lockkeeper.Finding {
	if !yes {
		return lockkeeper.Finding{Check: checkDraining, Detail: "new claims are taken"}
	}
	return lockkeeper.Finding{
		Check:  checkDraining,
		Grade:  lockkeeper.Broken,
		Detail: "no new claims are taken: " + reason,
		Remedy: "send new clients elsewhere; those who hold or wait are served to their end",
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
		Remedy: "make room on its file system, or let the server make and write it; locks are kept meanwhile, and what " +
			"the log misses is counted",
	}
}

// certificateLeft is for how many seconds the certificate is valid; infinite if there
// is none.
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
