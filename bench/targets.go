package main

import "fmt"

// target is what we want to reach, as a ratio between two peers in one workload,
// or as a figure by itself if over is empty.
type target struct {
	id      string
	what    string
	kind    kind
	clients int
	peer    string
	over    string
	metric  metric
	bound   float64
	atMost  bool // else at least
}

// verdict is a target beside what was measured.
type verdict struct {
	ID       string  `json:"id"`
	What     string  `json:"what"`
	Target   string  `json:"target"`
	Measured *spread `json:"measured,omitempty"` // nil: not measured
	Met      bool    `json:"met"`
	Why      string  `json:"why,omitempty"` // it was not measured
}

// Names of peers that targets are about.
const (
	echoName    = "limit: echo"
	muxName     = "limit: mux echo"
	relayName   = "limit: token relay"
	rueidisName = "redis, rueidis"
	pipesName   = "redis, pipelines"
	etcdName    = "etcd, sessions"
	leaseName   = "postgres, lease row"
	pglockName  = "postgres, pglock"
	oursName    = "lk, memory, engine"
	diskName    = "lk, disk, engine"
	rowsName    = "sqllock, postgres"

	redsyncName        = "redsync, " // and the servers
	redlockName        = "redlock, " // and the servers
	rueidislockOneName = "rueidislock, 1 key"
	rueidislockName    = "rueidislock, 3 keys"

	httpName     = "limit: net/http"
	overHTTPName = "lk, memory, HTTP"
)

var targets = []target{
	{"G4", "one request in flight, beside bare TCP echo", distinct, 1, oursName, echoName, pairsPerSecond, 0.9, false},
	{"G5", "128 concurrent on 2 connections, beside mux echo", distinct, 128, oursName, muxName, pairsPerSecond, 0.85,
		false},
	{"G5", "the same beside rueidis", distinct, 128, oursName, rueidisName, pairsPerSecond, 1.6, false},
	{"G5", "the same beside dflockd", distinct, 128, oursName, "dflockd", pairsPerSecond, 3, false},
	{"G5", "the same beside slock", distinct, 128, oursName, "slock", pairsPerSecond, 1.3, false},
	{"G6", "batches beside pipelined redis, 1 client", batches, 1, oursName, pipesName, pairsPerSecond, 3, false},
	{"G6", "batches beside pipelined redis, 16 clients", batches, 16, oursName, pipesName, pairsPerSecond, 3, false},
	{"G6", "batches beside pipelined redis, 128 clients", batches, 128, oursName, pipesName, pairsPerSecond, 3, false},
	{"G7", "HTTP and JSON beside bare net/http, 1 client", distinct, 1, overHTTPName, httpName, pairsPerSecond, 0.9,
		false},
	{"G7", "the same, 16 clients", distinct, 16, overHTTPName, httpName, pairsPerSecond, 0.9, false},
	{"G7", "the same, 128 clients", distinct, 128, overHTTPName, httpName, pairsPerSecond, 0.9, false},
	{"G8", "hand-off p50 beside a token relay", handoff, 128, oursName, relayName, handoffP50, 1.2, true},
	{"G8", "hand-off p99 beside a token relay", handoff, 128, oursName, relayName, handoffP99, 1.2, true},
	{"G8", "Jain's index at 128 waiters", contended, 128, oursName, "", fairness, 0.99, false},
	{"G9", "one contended path, 128 clients, beside a token relay", contended, 128, oursName, relayName, pairsPerSecond,
		0.95, false},
	{"G10", "locks in Postgres beside a lease row, 128 clients", distinct, 128, rowsName, leaseName, pairsPerSecond, 5,
		false},
	{"G10", "the same beside pglock", distinct, 128, rowsName, pglockName, pairsPerSecond, 10, false},
	{"G10", "hand-off p50 in Postgres, in µs", handoff, 128, rowsName, "", handoffP50, 1000, true},
	{"G11", "locks in Redis beside redsync, 1 server, 128 clients", distinct, 128, redlockName + "1 server",
		redsyncName + "1 server", pairsPerSecond, 2.5, false},
	{"G11", "the same, 3 servers", distinct, 128, redlockName + "3 servers", redsyncName + "3 servers", pairsPerSecond,
		3.5, false},
	{"G11", "the same, 3 servers, 16 clients", distinct, 16, redlockName + "3 servers", redsyncName + "3 servers",
		pairsPerSecond, 3.5, false},
	{"G11", "hand-off p50 on 1 server, beside rueidislock", handoff, 128, redlockName + "1 server", rueidislockOneName,
		handoffP50, 0.7, true},
	{"G11", "the same on 3 servers, beside rueidislock with 3 keys", handoff, 128, redlockName + "3 servers",
		rueidislockName, handoffP50, 0.7, true},
	{"G15", "durable server beside its memory mode, 128 clients", distinct, 128, diskName, oursName, pairsPerSecond, 0.4,
		false},
	{"G15", "durable server beside etcd on one node, 128 clients", distinct, 128, diskName, etcdName, pairsPerSecond, 8,
		false},
}

// memoryTargets are what a claim may cost our server in bytes, by occupation.
var memoryTargets = []struct {
	what  string
	bound float64
}{
	{heldOccupation, 300},
	{behindOccupation, 400},
	{lineOccupation, 400},
}

// judge compares the targets with what was measured.
func judge(r *result) (verdicts []verdict) {
	for _, g := range targets {
		verdicts = append(verdicts, g.judge(r.Tables))
	}
	for _, g := range memoryTargets {
		v := verdict{
			ID:     "G16",
			What:   "bytes in the server: " + g.what,
			Target: fmt.Sprintf("at most %g", g.bound),
			Why:    "memory was not measured",
		}
		for _, o := range r.Memory {
			if o.Peer == oursName && o.What == g.what {
				v.Measured, v.Met, v.Why = &spread{o.Bytes, o.Bytes, o.Bytes}, o.Bytes <= g.bound, ""
			}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func (g target) judge(tables []*table) verdict {
	v := verdict{ID: g.id, What: g.what, Target: fmt.Sprintf("at least %gx", g.bound)}
	if g.atMost {
		v.Target = fmt.Sprintf("at most %gx", g.bound)
	}
	if g.over == "" {
		v.Target = v.Target[:len(v.Target)-1]
	}
	for _, t := range tables {
		if t.Kind == g.kind && t.Clients == g.clients {
			v.Measured, v.Why = g.measured(t)
		}
	}
	switch {
	case v.Measured == nil && v.Why == "":
		v.Why = "the workload was not run"
	case v.Measured != nil:
		v.Met = v.Measured.Median >= g.bound
		if g.atMost {
			v.Met = v.Measured.Median <= g.bound
		}
	}
	return v
}

// measured is the figure of the target in its table, or why there is none.
func (g target) measured(t *table) (*spread, string) {
	own, over := t.row(g.peer), t.row(g.over)
	if own == nil || own.Failure != "" {
		return nil, g.peer + " was not measured"
	}
	f, ok := t.figure(g.metric, own, over)
	switch {
	case !ok:
		return nil, "too little was done to say"
	case g.over == "":
		return &f.spread, ""
	case f.Ratio == nil:
		return nil, g.over + " was not measured"
	}
	return f.Ratio, ""
}
