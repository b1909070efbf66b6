package observe

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// The names are as Prometheus wants them, and all are there from the beginning.
func TestMetricNames(t *testing.T) {
	m := NewMetrics(Sources{Version: "v1"})
	problems, err := promlint.New(bytes.NewReader(m.registry.Text())).Lint()
	must(t, problems, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "lockkeeper_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for name, reasons := range map[string]int{"holds_ended": 7, "waits_ended": 6, "asked_to_yield": 3} {
		if n := strings.Count(text, "lockkeeper_"+name+`_total{reason="`); n != reasons {
			t.Errorf("%s has %d reasons before anything happened, want %d", name, n, reasons)
		}
	}
	for _, line := range []string{
		`lockkeeper_grants_total{mode="mixed"} 0`, `lockkeeper_engine_calls_total{op="claim"} 0`,
		`lockkeeper_denials_total{verb="connect"} 0`,
		`version="v1"`, "go_goroutines ", "lockkeeper_certificate_left_seconds +Inf", "lockkeeper_ready 1",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%s is missing", line)
		}
	}
}

// The calls of an engine are counted, its errors by kind, and some are timed.
func TestCounted(t *testing.T) {
	m := NewMetrics(Sources{})
	e := m.Counted(memlock.New())
	ctx := t.Context()
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
	must(t, lease, err)
	for range 2 * sampled {
		if _, err := e.Renew(ctx, lease.Key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Renew(ctx, lockkeeper.Key{Session: "no such"}); !errors.Is(err, lockkeeper.ErrSession) {
		t.Fatal(err)
	}
	for range e.List(ctx, lockkeeper.Query{}) {
	}
	must(t, 0, e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave}))
	expect(t, m, `
		engine_calls_total attach: 1
		engine_calls_total renew: 129
		engine_calls_total list: 1
		engine_calls_total end: 1
		engine_calls_total claim: 0
		engine_errors_total session: 1
		engine_errors_total other: 0`)
	if timed := value(t, m, "lockkeeper_engine_call_seconds", "renew"); !strings.HasSuffix(timed, " in 2") {
		t.Errorf("timed: %s", timed)
	}
}

// What operators do, and what is denied, are counted by verb; what failed is neither.
func TestActs(t *testing.T) {
	m := NewMetrics(Sources{})
	m.Act(access.Act{Verb: access.Revoke})
	m.Act(access.Act{Verb: access.Freeze, Err: lockkeeper.ErrDenied})
	m.Act(access.Act{Verb: access.Thaw, Err: lockkeeper.ErrNotHeld})
	m.Act(access.Act{Verb: access.Revoke, Err: lockkeeper.ErrUnavailable})
	expect(t, m, `
		operator_acts_total revoke: 1
		operator_acts_total thaw: 0
		denials_total thaw: 0
		denials_total revoke: 0
		denials_total freeze: 1
		operator_acts_total freeze: 0`)
}

// journaled is an engine that tells of commits.
type journaled struct {
	lockkeeper.Engine
	tell func(int, time.Duration)
}

func (j *journaled) ReportCommits(tell func(int, time.Duration)) { j.tell = tell }

func TestEngineTellsOfItself(t *testing.T) {
	m := NewMetrics(Sources{})
	j := &journaled{Engine: memlock.New()}
	m.Engine(j)
	m.Engine(memlock.New()) // which tells nothing
	j.tell(3, time.Millisecond)
	expect(t, m, `
		journal_commit_entries: 3 in 1
		journal_commit_seconds: 0.001 in 1`)
}

// polite is an engine that measures steals.
type polite struct {
	lockkeeper.Engine
	report func(time.Duration)
}

func (p *polite) ReportHandshakes(report func(time.Duration)) { p.report = report }

func TestStealHandshakesAreMeasured(t *testing.T) {
	m := NewMetrics(Sources{})
	p := &polite{Engine: memlock.New()}
	m.Engine(p)
	p.report(2 * time.Second)
	expect(t, m, `
		steal_handshake_seconds: 2 in 1`)
}

// database is an engine that tells how its transactions fare, and what it owes.
type database struct {
	lockkeeper.Engine
	repeated func(string)
	owed     time.Duration
	err      error
}

func (d *database) ReportRepeats(tell func(string)) { d.repeated = tell }

func (d *database) Overdue(ctx context.Context) (time.Duration, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return 0, errors.New("a scrape may hang")
	}
	return d.owed, d.err
}

// The metrics show sessions that a database can't end.
func TestExpiryThatCannotRun(t *testing.T) {
	m := NewMetrics(Sources{})
	d := &database{Engine: memlock.New()}
	m.Engine(d)
	d.repeated("locked")
	expect(t, m, `
		transactions_repeated_total locked: 1
		transactions_repeated_total conflict: 0
		expiry_lag_seconds: 0`)
	d.owed = time.Minute
	expect(t, m, "expiry_lag_seconds: 60")
	d.err = lockkeeper.ErrUnavailable
	expect(t, m, "expiry_lag_seconds: 0")
}

// BenchmarkCounted is a claim and its release, with and without being counted and
// followed.
func BenchmarkCounted(b *testing.B) {
	for _, kind := range []string{"plain", "counted", "watched"} {
		b.Run(kind, func(b *testing.B) {
			e := memlock.New()
			m := NewMetrics(Sources{})
			if kind != "plain" {
				e = m.Counted(e)
			}
			if kind == "watched" {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				go NewWatch(e, m, nil, nil).Run(ctx)
			}
			ctx := context.Background()
			lease, err := e.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Hour}, nil)
			if err != nil {
				b.Fatal(err)
			}
			k := lease.Key
			for b.Loop() {
				k.LowestOpen++
				w := lockkeeper.Want{ID: k.LowestOpen,
					Targets: []lockkeeper.Target{{Path: "db/test", Mode: lockkeeper.ModeExclusive}}}
				if _, err := e.Claim(ctx, k, w); err != nil {
					b.Fatal(err)
				}
				if err := e.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A node states its cluster, its alarms by kind, as of the reading.
func TestMetricsOfACluster(t *testing.T) {
	now := lockkeeper.ClusterStatus{Node: "one", Leader: "one", State: lockkeeper.NodeReady, Live: 3}
	looks := 0
	m := NewMetrics(Sources{Cluster: func() lockkeeper.ClusterStatus { looks++; return now }})
	for name, want := range map[string]string{"leads": "1", "no_quorum": "0", "voters_reached": "3"} {
		if got := value(t, m, "lockkeeper_cluster_"+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	now = lockkeeper.ClusterStatus{
		Node:   "one",
		State:  lockkeeper.NodeNoQuorum,
		Alarms: []lockkeeper.Alarm{{Kind: lockkeeper.AlarmNotReached, Node: "two"}, {Kind: lockkeeper.AlarmNotReached}},
	}
	looks = 0
	for kind, want := range map[string]string{"not reached": "2", "no reserve": "0"} {
		if got := value(t, m, "lockkeeper_cluster_alarms", kind); got != want {
			t.Errorf("alarms of kind %q: %s, want %s", kind, got, want)
		}
	}
	if looks != 2 {
		t.Errorf("two readings looked %d times", looks)
	}
}
