package observe

import (
	"cmp"
	"errors"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/exposition"
)

// Sources are what metrics ask when they are read. Each may be nil, and must be safe
// for concurrent use.
type Sources struct {
	Version     string                // of the server
	Connections func() int            // that clients have
	Sessions    func() int            // that have come by a connection
	Draining    func() (string, bool) // as [access.Gate.Draining]
	Health      *Health
	Audit       *Audit
	// Cluster returns the cluster of which the server is a node.
	Cluster func() lockkeeper.ClusterStatus
}

// Metrics count what happens in a server, for Prometheus. No label has more than a
// few values: there is none for a path or an identity. It is safe for concurrent use.
type Metrics struct {
	registry *exposition.Registry
	sources  Sources
	watch    atomic.Pointer[Watch]

	grants      [lockkeeper.ModePermits + 1]*exposition.Counter // by mode; 0: several
	unconfirmed *exposition.Counter
	holdsEnded  *exposition.Vector[exposition.Counter] // by reason
	waitsEnded  *exposition.Vector[exposition.Counter]
	yields      *exposition.Vector[exposition.Counter]
	wait, hold  *exposition.Histogram
	gaps        *exposition.Counter

	calls      calls
	entries    *exposition.Histogram
	sync       *exposition.Histogram
	handshakes *exposition.Histogram
	repeats    *exposition.Vector[exposition.Counter]
	debtor     atomic.Pointer[lockkeeper.OverdueReporter]

	acts, denials *exposition.Vector[exposition.Counter]
}

// Buckets, in seconds but for entries.
var (
	longBuckets  = []float64{.001, .01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	shortBuckets = []float64{1e-6, 5e-6, 2e-5, 1e-4, 5e-4, .002, .01, .05, .25, 1, 5}
	batchBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}
)

// NewMetrics returns metrics with nothing counted yet, and all names there.
func NewMetrics(s Sources) *Metrics {
	m := &Metrics{registry: new(exposition.Registry), sources: s}
	m.registry.AddRuntime()
	m.registerLocks()
	m.registerEngine()
	m.registerServer()
	if s.Cluster != nil {
		m.registerCluster(s.Cluster)
	}
	return m
}

// Handler answers with the metrics in the form that Prometheus reads.
func (m *Metrics) Handler() http.Handler { return m.registry }

// registerLocks makes what the watch counts.
func (m *Metrics) registerLocks() {
	modes := m.registry.Counters("lockkeeper_grants_total",
		"Claims that were granted, upgrades included, by mode; mixed has targets of several modes.", "mode")
	m.grants[0] = modes.With("mixed")
	for mode := lockkeeper.ModeExclusive; mode <= lockkeeper.ModePermits; mode++ {
		m.grants[mode] = modes.With(mode.String())
	}
	m.holdsEnded = m.byReason("lockkeeper_holds_ended_total", "Holds that ended, by reason.",
		lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Stolen, lockkeeper.Expired, lockkeeper.Overdue,
		lockkeeper.Revoked, lockkeeper.Superseded)
	m.waitsEnded = m.byReason("lockkeeper_waits_ended_total", "Claims that ended without having been granted, by reason.",
		lockkeeper.TimedOut, lockkeeper.Cancelled, lockkeeper.Expired, lockkeeper.Revoked, lockkeeper.Deadlock,
		lockkeeper.Superseded)
	m.yields = m.byReason("lockkeeper_asked_to_yield_total",
		"Holds that were asked to yield, by what their end will be if they don't.",
		lockkeeper.Stolen, lockkeeper.Overdue, lockkeeper.Revoked)
	m.unconfirmed = m.registry.Counter("lockkeeper_unconfirmed_grants_total",
		"Grants made before the former holder could be sure to know of its loss.")
	m.gaps = m.registry.Counter("lockkeeper_watch_gaps_total",
		"Times that the server had to follow its locks again; other metrics may miss what happened in between.")
	m.wait = m.registry.Histogram("lockkeeper_wait_seconds", "How long those who were granted had waited.", longBuckets)
	m.hold = m.registry.Histogram("lockkeeper_hold_seconds",
		"How long what ended had been held; 0 if that was too short to be seen.", longBuckets)
	m.registerPresence()
}

// registerEngine makes what the decorator and the journal count.
func (m *Metrics) registerEngine() {
	m.calls.register(m)
	m.entries = m.registry.Histogram("lockkeeper_journal_commit_entries",
		"Entries that the journal made safe at once; of a database, commands in one transaction.", batchBuckets)
	m.sync = m.registry.Histogram("lockkeeper_journal_commit_seconds", "How long it took to write them and have the disk "+
		"confirm it; of a database, the transaction from its begin.", shortBuckets)
	m.handshakes = m.registry.Histogram("lockkeeper_steal_handshake_seconds",
		"From when the holders of a lock had been asked to yield until the thief was granted because they "+
			"released; only engines that measure it.", longBuckets)
	m.repeats = m.registry.Counters("lockkeeper_transactions_repeated_total",
		"Transactions of a database that did not come about and were tried again: for a conflict with another one, "+
			"as something was locked, or as the database was away.", "reason")
	for _, why := range []string{"conflict", "locked", "away"} {
		m.repeats.With(why)
	}
}

// registerServer makes what is about the server.
func (m *Metrics) registerServer() {
	m.acts = m.registry.Counters("lockkeeper_operator_acts_total", "What operators did, by verb.", "verb")
	m.denials = m.registry.Counters("lockkeeper_denials_total",
		"What was not allowed, by verb; connect is a credential that was not valid.", "verb")
	for _, v := range []access.Verb{
		access.Connect, access.Look, access.Lock, access.Revoke, access.Freeze, access.Thaw, access.Drain,
	} {
		m.acts.With(string(v))
		m.denials.With(string(v))
	}
	s := &m.sources
	m.gauge("lockkeeper_connections", "Connections of clients.", counted(s.Connections))
	m.gauge("lockkeeper_sessions", "Sessions of clients that come by a connection.", counted(s.Sessions))
	m.gauge("lockkeeper_draining", "1 while the server admits no new claims.", func() float64 {
		if s.Draining == nil {
			return 0
		}
		_, yes := s.Draining()
		return number(yes)
	})
	m.gauge("lockkeeper_ready", "1 if /readyz says that locks can be taken.", func() float64 {
		return number(s.Health == nil || s.Health.ready())
	})
	m.gauge("lockkeeper_certificate_left_seconds", "Until the server's certificate expires; infinite if it has none.",
		s.Health.certificateLeft)
	m.registry.Func(exposition.KindCounter, "lockkeeper_audit_lines_total", "Lines that were written to the audit log.",
		func() float64 { return float64(s.Audit.count().written) })
	m.registry.Func(exposition.KindCounter, "lockkeeper_audit_dropped_total",
		"Lines that could not be kept until the audit log could be written.",
		func() float64 { return float64(s.Audit.count().dropped) })
	m.registry.Info("lockkeeper_build_info", "1; its labels tell what runs.",
		"version", cmp.Or(s.Version, "unknown"), "go", runtime.Version())
}

func counted(f func() int) func() float64 {
	return func() float64 {
		if f == nil {
			return 0
		}
		return float64(f())
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (m *Metrics) gauge(name, help string, f func() float64) {
	m.registry.Func(exposition.KindGauge, name, help, f)
}

// granted counts a grant.
func (m *Metrics) granted(st *lockkeeper.Status, waited time.Duration) {
	m.grants[modeOf(st.Grants)].Inc()
	m.wait.Observe(waited.Seconds())
	if st.Unconfirmed {
		m.unconfirmed.Inc()
	}
}

// modeOf is the mode of all grants; 0 if they differ.
func modeOf(grants []lockkeeper.Grant) lockkeeper.Mode {
	var mode lockkeeper.Mode
	for i := range grants {
		if i > 0 && grants[i].Mode != mode || grants[i].Mode > lockkeeper.ModePermits {
			return 0
		}
		mode = grants[i].Mode
	}
	return mode
}

// ended counts the end of a hold, or of a wait.
func (m *Metrics) ended(st *lockkeeper.Status, took time.Duration) {
	if st.Fence == 0 {
		m.waitsEnded.With(st.Reason.String()).Inc()
		return
	}
	m.holdsEnded.With(st.Reason.String()).Inc()
	m.hold.Observe(took.Seconds())
}

func (m *Metrics) asked(r lockkeeper.Reason) { m.yields.With(r.String()).Inc() }

// byReason makes counters by reason. Those that engines state are there from the
// beginning, at 0.
func (m *Metrics) byReason(name, help string, stated ...lockkeeper.Reason) *exposition.Vector[exposition.Counter] {
	counters := m.registry.Counters(name, help, "reason")
	for _, r := range stated {
		counters.With(r.String())
	}
	return counters
}

// registerPresence makes what lives at the moment of a reading, in one look.
func (m *Metrics) registerPresence() {
	var now present
	var lag time.Duration
	m.registry.Before(func() {
		now = present{}
		if w := m.watch.Load(); w != nil {
			now = w.present()
		}
		lag = max(now.expiryLag, m.overdue())
	})
	m.gauge("lockkeeper_holds", "Claims that are held.", func() float64 { return float64(now.held) })
	m.gauge("lockkeeper_waiting", "Claims that wait.", func() float64 { return float64(now.waiting) })
	m.gauge("lockkeeper_freezes", "Paths that operators have frozen.", func() float64 { return float64(now.freezes) })
	m.gauge("lockkeeper_oldest_hold_seconds", "How long the oldest hold lasts by now.",
		func() float64 { return now.oldestHold.Seconds() })
	m.gauge("lockkeeper_oldest_wait_seconds", "How long the oldest waiting claim has waited.",
		func() float64 { return now.oldestWait.Seconds() })
	m.gauge("lockkeeper_expiry_lag_seconds", "How long the engine has owed the end of a session, claim or freeze whose "+
		"time is over; more than half a minute: expiry does not run.", func() float64 { return lag.Seconds() })
}

// Act counts what an operator did, or what was denied; it is for [access.Options]. What
// failed, such as the end of a freeze that is not there, is neither.
func (m *Metrics) Act(act access.Act) {
	switch {
	case errors.Is(act.Err, lockkeeper.ErrDenied):
		m.denials.With(string(act.Verb)).Inc()
	case act.Err == nil:
		m.acts.With(string(act.Verb)).Inc()
	}
}
