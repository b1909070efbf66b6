package main

import "fmt"

// target is an aim of the project, and where a run finds the figure.
type target struct {
	id   string
	what string
	aim  aim
	from source
}

// aim bounds a figure from below or from above.
type aim struct {
	bound  float64
	atMost bool
	unit   string // "x": a ratio
}

func atLeast(ratio float64) aim { return aim{ratio, false, "x"} }
func atMost(ratio float64) aim  { return aim{ratio, true, "x"} }

// metBy reports whether the figure is on the right side of the bound.
func (a aim) metBy(v float64) bool {
	if a.atMost {
		return v <= a.bound
	}
	return v >= a.bound
}

func (a aim) String() string {
	side := "at least"
	if a.atMost {
		side = "at most"
	}
	return fmt.Sprintf("%s %g%s", side, a.bound, a.unit)
}

// source finds the figure of a target in a run, or says why there is none.
type source interface {
	figure(r *result) (*spread, string)
}

// verdict is a target beside what was measured.
type verdict struct {
	id       string
	what     string
	aim      string
	measured *spread // nil: not measured
	met      bool
	why      string // it was not measured
}

// Names of peers that targets are about.
const (
	echoName      = "limit: echo"
	muxName       = "limit: mux echo"
	relayName     = "limit: token relay"
	quorumName    = "limit: quorum fdatasync"
	rueidisName   = "redis, rueidis"
	pipesName     = "redis, pipelines"
	etcdName      = "etcd, 1 node"
	etcd3Name     = "etcd, 3 nodes"
	leaseName     = "postgres, lease row"
	pglockName    = "postgres, pglock"
	myLeaseName   = "mariadb, lease row"
	memlockName   = "memlock"
	oursName      = "lk, memory, engine"
	diskName      = "lk, disk, engine"
	clusterName   = "lk, 3 nodes, leader"
	spreadName    = "lk, 3 nodes, all"
	rowsName      = "sqllock, postgres"
	mariaRowsName = "sqllock, mariadb"

	redsyncName        = "redsync, " // and the servers
	redlockName        = "redlock, " // and the servers
	rueidislockOneName = "rueidislock, 1 key"
	rueidislockName    = "rueidislock, 3 keys"

	httpName     = "limit: net/http"
	overHTTPName = "lk, memory, HTTP"
)

// targets are all aims. Those of one id stand together.
var targets = []target{
	{"G1", "a key of package semaphore beside counters in a sync.Map: 1 key, 1 goroutine", atLeast(0.7),
		times{slots("1/keys=1", "by key"), slots("1/keys=1", "counters in a sync.Map")}},
	{"G1", "the same, 1 key, all cores", atLeast(0.7),
		times{slots("CORES/keys=1", "by key"), slots("CORES/keys=1", "counters in a sync.Map")}},
	{"G1", "the same, 1,000 keys, 1 goroutine", atLeast(0.7),
		times{slots("1/keys=1000", "by key"), slots("1/keys=1000", "counters in a sync.Map")}},
	{"G1", "the same, 1,000 keys, all cores", atLeast(0.7),
		times{slots("CORES/keys=1000", "by key"), slots("CORES/keys=1000", "counters in a sync.Map")}},
	{"G1", "beside ref-counted mutexes: 1 key, 1 goroutine", atLeast(2.5),
		times{slots("1/keys=1", "by key"), slots("1/keys=1", "ref-counted mutexes")}},
	{"G1", "the same, 1,000 keys, 1 goroutine", atLeast(2.5),
		times{slots("1/keys=1000", "by key"), slots("1/keys=1000", "ref-counted mutexes")}},
	{"G1", "the same, 1,000 keys, all cores", atLeast(2.5),
		times{slots("CORES/keys=1000", "by key"), slots("CORES/keys=1000", "ref-counted mutexes")}},
	{"G1", "the same, 100,000 keys in turn, 1 goroutine", atLeast(0.5),
		times{slots("1/keys=100000", "by key"), slots("1/keys=100000", "ref-counted mutexes")}},
	{"G2", "128 goroutines, 1 key, beside x/sync in a sync.Map", atLeast(1),
		times{slots("128/keys=1", "by key"), slots("128/keys=1", "x_sync semaphores in a sync.Map")}},

	{"G3", "Client on memlock beside x/sync: 128 goroutines, 1 path, each pair a hand-off", atLeast(0.8),
		times{"BenchmarkOnePath/memlock", "BenchmarkOnePath/xsync"}},
	{"G3", "evenness of the same (Jain)", aim{bound: 0.99},
		loaded{contended, 128, memlockName, "", fairness}},
	{"G3", "time of a pair on a free path beside x/sync", atMost(14),
		slower{"BenchmarkFree/memlock", "BenchmarkFree/xsync"}},

	{"G4", "one request in flight beside bare TCP echo", atLeast(0.9),
		loaded{distinct, 1, oursName, echoName, pairsPerSecond}},
	{"G5", "128 callers on 2 connections beside mux echo", atLeast(0.85),
		loaded{distinct, 128, oursName, muxName, pairsPerSecond}},
	{"G5", "the same beside rueidis", atLeast(1.6),
		loaded{distinct, 128, oursName, rueidisName, pairsPerSecond}},
	{"G6", "batches of 32 beside pipelined Redis: 1 client", atLeast(3),
		loaded{batches, 1, oursName, pipesName, pairsPerSecond}},
	{"G6", "16 clients", atLeast(3), loaded{batches, 16, oursName, pipesName, pairsPerSecond}},
	{"G6", "128 clients", atLeast(3), loaded{batches, 128, oursName, pipesName, pairsPerSecond}},
	{"G6", "batches of 32 beside echo of as many bytes: 1 client", atLeast(0.3),
		loaded{batches, 1, oursName, echoName, pairsPerSecond}},
	{"G6", "16 clients", atLeast(0.3), loaded{batches, 16, oursName, echoName, pairsPerSecond}},
	{"G6", "128 clients", atLeast(0.3), loaded{batches, 128, oursName, echoName, pairsPerSecond}},
	{"G7", "HTTP and JSON beside bare net/http: 1 client", atLeast(0.8),
		loaded{distinct, 1, overHTTPName, httpName, pairsPerSecond}},
	{"G7", "16 clients", atLeast(0.8), loaded{distinct, 16, overHTTPName, httpName, pairsPerSecond}},
	{"G7", "128 clients", atLeast(0.8), loaded{distinct, 128, overHTTPName, httpName, pairsPerSecond}},
	{"G8", "hand-off with 128 in the queue beside a token relay, p50", atMost(1.2),
		loaded{handoff, 128, oursName, relayName, handoffP50}},
	{"G8", "p99", atMost(1.2), loaded{handoff, 128, oursName, relayName, handoffP99}},
	{"G8", "evenness of 128 waiters (Jain)", aim{bound: 0.99},
		loaded{contended, 128, oursName, "", fairness}},
	{"G8", "hand-off across the nodes of a durable cluster beside a token relay, p50", atMost(1.2),
		loaded{handoff, 128, spreadName, relayName, handoffP50}},
	{"G8", "p99", atMost(1.2), loaded{handoff, 128, spreadName, relayName, handoffP99}},
	{"G8", "evenness of 128 waiters at its nodes (Jain)", aim{bound: 0.99},
		loaded{contended, 128, spreadName, "", fairness}},
	{"G9", "one path, 128 clients, beside a token relay", atLeast(0.8),
		loaded{contended, 128, oursName, relayName, pairsPerSecond}},

	{"G10", "rows of Postgres beside lease rows: 128 callers of one process", atLeast(5),
		loaded{distinct, 128, rowsName, leaseName, pairsPerSecond}},
	{"G10", "the same beside pglock", atLeast(10), loaded{distinct, 128, rowsName, pglockName, pairsPerSecond}},
	{"G10", "one caller of the process beside lease rows", atLeast(1),
		loaded{distinct, 1, rowsName, leaseName, pairsPerSecond}},
	{"G10", "hand-off in Postgres, p50", aim{1000, true, " µs"}, loaded{handoff, 128, rowsName, "", handoffP50}},
	{"G10", "rows of MariaDB beside lease rows: 128 callers of one process", atLeast(3),
		loaded{distinct, 128, mariaRowsName, myLeaseName, pairsPerSecond}},
	{"G11", "locks in Redis beside redsync: 1 server, 128 clients", atLeast(2.5),
		loaded{distinct, 128, redlockName + "1 server", redsyncName + "1 server", pairsPerSecond}},
	{"G11", "3 servers, 128 clients", atLeast(3.5),
		loaded{distinct, 128, redlockName + "3 servers", redsyncName + "3 servers", pairsPerSecond}},
	{"G11", "3 servers, 16 clients", atLeast(3.5),
		loaded{distinct, 16, redlockName + "3 servers", redsyncName + "3 servers", pairsPerSecond}},
	{"G11", "hand-off on 1 server beside rueidislock, p50", atMost(0.7),
		loaded{handoff, 128, redlockName + "1 server", rueidislockOneName, handoffP50}},
	{"G11", "on 3 servers beside rueidislock with 3 keys", atMost(0.7),
		loaded{handoff, 128, redlockName + "3 servers", rueidislockName, handoffP50}},
	{"G12", "etcd as the log, beside its own Mutex: 128 clients", atLeast(6), elsewhere("there is no such engine yet")},
	{"G12", "hand-off of the same", aim{1, true, "/30"}, elsewhere("there is no such engine yet")},
	{"G14", "durable cluster of three beside etcd on three nodes, clients at the leader: 16 clients", atLeast(8),
		loaded{distinct, 16, clusterName, etcd3Name, pairsPerSecond}},
	{"G14", "128 clients", atLeast(8), loaded{distinct, 128, clusterName, etcd3Name, pairsPerSecond}},
	{"G14", "the same, clients at all nodes: 16 clients", atLeast(8),
		loaded{distinct, 16, spreadName, etcd3Name, pairsPerSecond}},
	{"G14", "128 clients", atLeast(8), loaded{distinct, 128, spreadName, etcd3Name, pairsPerSecond}},

	{"G15", "durable server beside its memory mode, 128 callers", atLeast(0.4),
		loaded{distinct, 128, diskName, oursName, pairsPerSecond}},
	{"G15", "beside etcd on one node", atLeast(8), loaded{distinct, 128, diskName, etcdName, pairsPerSecond}},
	{"G15", "processor time of the server beside its memory mode", atMost(2.5),
		loaded{distinct, 128, diskName, oursName, serverCPU}},
	{"G16", "memory of a claim, " + heldOccupation, aim{300, true, " bytes"}, occupied(heldOccupation)},
	{"G16", behindOccupation, aim{400, true, " bytes"}, occupied(behindOccupation)},
	{"G16", lineOccupation, aim{400, true, " bytes"}, occupied(lineOccupation)},
	{"G16", endedOccupation, aim{100, true, " bytes"}, occupied(endedOccupation)},
	{"G17", "time of a release beside a million holds, beside one with ten", atMost(1.2),
		slower{"BenchmarkReleaseWithHolds/1000000", "BenchmarkReleaseWithHolds/10"}},
	{"G17", "with 100,000 waiters, beside one with ten", atMost(1.3),
		slower{"BenchmarkReleaseWithWaiters/100000", "BenchmarkReleaseWithWaiters/10"}},

	{"G18", "time of lk run -- true on SQLite beside flock f true", atMost(6), started{runStart, flockStart}},
	{"G18", "time of lk version beside an empty program with cobra", atMost(2), started{versionStart, cobraStart}},
	{"G18", "size of lk without symbols", aim{30, true, " MB"}, binarySize{}},
	{"G19", "page with 10,000 claims and 100 changes a second: frames under 33 ms", aim{95, false, " %"},
		elsewhere("measured in a browser")},
	{"G20", "p99 of a victim beside each attack, beside a harmless neighbour", atMost(3),
		elsewhere("go test -run - -bench . -benchtime 1x ./internal/neighbours tells it in 10 minutes")},
}

// judge compares the targets with a run.
func judge(r *result) (verdicts []verdict) {
	for _, g := range targets {
		v := verdict{id: g.id, what: g.what, aim: g.aim.String()}
		if v.measured, v.why = g.from.figure(r); v.measured != nil {
			v.met = g.aim.metBy(v.measured.Median)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// elsewhere is the source of a figure that no run has. It says why.
type elsewhere string

func (e elsewhere) figure(*result) (*spread, string) { return nil, string(e) }

// loaded is the source of a metric of a workload: a ratio between two peers, round by round, or the
// figure of one peer if over is empty.
type loaded struct {
	kind    kind
	clients int
	peer    string
	over    string
	metric  metric
}

func (l loaded) figure(r *result) (f *spread, why string) {
	why = "the workload was not run"
	for _, t := range r.tables(workload{Kind: l.kind, Clients: l.clients}) {
		if f, why = l.in(t); f != nil {
			return f, ""
		}
	}
	return nil, why
}

func (l loaded) in(t *table) (*spread, string) {
	own, over := t.row(l.peer), t.row(l.over)
	if own == nil || own.Failure != "" {
		return nil, l.peer + " was not measured"
	}
	f, ok := t.figure(l.metric, own, over)
	switch {
	case !ok:
		return nil, "too little was done to say"
	case l.over == "":
		return &f.spread, ""
	case f.Ratio == nil:
		return nil, l.over + " was not measured"
	}
	return f.Ratio, ""
}

// occupied is the source of the bytes of an occupation.
type occupied string

func (o occupied) figure(r *result) (*spread, string) {
	for _, m := range r.Memory {
		if m.Peer == oursName && m.What == string(o) {
			return &spread{m.Bytes, m.Bytes, m.Bytes}, ""
		}
	}
	return nil, "memory was not measured"
}
