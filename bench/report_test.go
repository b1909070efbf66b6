package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// small is a result with every sort of row.
func small() *result {
	t := &table{workload: workload{distinct, 128, muxName}, Rows: []*row{
		{Peer: muxName, Rounds: []sample{{
			Pairs:     1000,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 2 * time.Millisecond,
		}}},
		{Peer: oursName, Rounds: []sample{{
			Pairs:     900,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 3 * time.Millisecond,
		}}},
		{Peer: rueidisName, Rounds: []sample{{
			Pairs:     600,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 3 * time.Millisecond,
		}}},
		{Peer: etcdName, Failure: "it died"},
	}}
	t.workOut()
	r := &result{
		Tables:  []*table{t},
		How:     map[string]string{muxName: "by hand"},
		Missing: map[string]string{"redsync": "it can't be fetched"},
		Machine: machine{Cores: 2},
		Memory:  []occupancy{{oursName, heldOccupation, 1000, 299}, {oursName, lineOccupation, 1000, 401}},
		Benchmarks: []*goBenchmark{
			{"BenchmarkOnePath/memlock", []float64{1000, 2000, 1500}},
			{"BenchmarkOnePath/xsync", []float64{500, 1800, 1500}},
			{"BenchmarkReleaseWithHolds/10", []float64{1000}},
			{"BenchmarkReleaseWithHolds/1000000", []float64{1500}},
			{slots("2/keys=1", "by key"), []float64{20}},
			{slots("2/keys=1", "counters in a sync.Map"), []float64{15}},
		},
		Starts: []*start{{trueStart, []float64{1}}, {flockStart, []float64{2}}, {runStart, []float64{10}}},
		Binary: 31_000_000,
	}
	return r
}

func TestVerdicts(t *testing.T) {
	verdictOf := func(r *result, what string) verdict {
		t.Helper()
		for _, v := range judge(r) {
			if v.id+" "+v.what == what {
				return v
			}
		}
		t.Fatalf("there is no target %q", what)
		return verdict{}
	}
	for _, c := range []struct {
		what     string
		measured float64 // 0: not measured
		met      bool
		why      string
	}{
		{"G5 128 callers on 2 connections beside mux echo", 0.9, true, ""},
		{"G5 the same beside rueidis", 1.5, false, ""},
		{"G15 beside etcd on one node", 0, false, diskName + " was not measured"},
		{"G4 one request in flight beside bare TCP echo", 0, false, "the workload was not run"},
		{"G16 memory of a claim, " + heldOccupation, 299, true, ""},
		{"G16 " + lineOccupation, 401, false, ""},
		{"G16 " + behindOccupation, 0, false, "memory was not measured"},
		{"G3 Client on memlock beside x/sync: 128 goroutines, 1 path, each pair a hand-off", 0.9, true, ""},
		{"G17 time of a release beside a million holds, beside one with ten", 1.5, false, ""},
		{"G17 with 100,000 waiters, beside one with ten", 0, false, "BenchmarkReleaseWithWaiters/100000 was not run"},
		{"G1 the same, 1 key, all cores", 0.75, true, ""},
		{"G18 time of lk run -- true on SQLite beside flock f true", 5, true, ""},
		{"G18 time of lk version beside an empty program with cobra", 0, false, "programs were not started"},
		{"G18 size of lk without symbols", 31, false, ""},
		{"G14 the same, clients at all nodes: 16 clients", 0, false, "the workload was not run"},
	} {
		v := verdictOf(small(), c.what)
		if (v.measured != nil) != (c.measured != 0) || v.measured != nil && v.measured.Median != c.measured ||
			v.met != c.met || v.why != c.why {
			t.Errorf("%s: %+v %+v, want %+v", c.what, v, v.measured, c)
		}
	}
	least := loaded{kind: distinct, clients: 128, peer: oursName, over: muxName, metric: pairsPerSecond}
	if f, _ := least.figure(small()); atMost(0.8).metBy(f.Median) || atMost(0.8).String() != "at most 0.8x" {
		t.Errorf("%v for %s", f, atMost(0.8))
	}
}

// Every aim has a target: a group that is lost is not missed by anybody.
func TestAllAimsAreThere(t *testing.T) {
	known := map[string]bool{}
	for _, g := range targets {
		known[g.id] = true
	}
	for i := 1; i <= 20; i++ {
		if id := fmt.Sprintf("G%d", i); !known[id] && id != "G13" {
			t.Errorf("there is no target of %s", id)
		}
	}
}

// A peer that a target names and that does not exist would never be measured.
func TestTargetsNamePeers(t *testing.T) {
	known := map[string][]kind{"": {distinct, batches, contended, handoff}}
	for _, p := range peers(sizes{}) {
		known[p.about().name] = p.about().kinds
	}
	for _, g := range targets {
		l, ok := g.from.(loaded)
		if !ok {
			continue
		}
		for _, name := range []string{l.peer, l.over} {
			if !slices.Contains(known[name], l.kind) {
				t.Errorf("%s, %s: %q does no %s", g.id, g.what, name, l.kind)
			}
		}
	}
}

func TestPrinted(t *testing.T) {
	var plain strings.Builder
	if err := small().printPlain(&plain); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"distinct paths, 128 clients", "0.90", etcdName + " (failed)", "it died",
		"redsync: it can't be fetched", "G15", "met", "missed", "OnePath/memlock", runStart} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, plain.String())
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0.5:        "0.50",
		9.949:      "9.95",
		12.34:      "12.3",
		123.4:      "123",
		999:        "1.0k",
		12345:      "12.3k",
		168_000:    "168k",
		16_277_000: "16.3M",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written as %s, want %s", v, got, want)
		}
	}
}

// What -json writes can be read again as it was, and its figures follow.
func TestRunIsReadAsItWasWritten(t *testing.T) {
	text, err := small().encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	read, err := readRun(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := small(); !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v, want %+v", read, want)
	}
	if lines := strings.Count(string(text), "\n"); lines < 16 {
		t.Errorf("rows have no lines of their own:\n%s", text)
	}
	for _, bad := range []string{"", "{", `{"machine":{},"unknown":1}`} {
		if err := os.WriteFile(file, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readRun(file); err == nil || !strings.Contains(err.Error(), "run.json") {
			t.Errorf("%q is read as a run: %v", bad, err)
		}
	}
}

// A run of some workloads and peers keeps what is there of the others.
func TestKeptTables(t *testing.T) {
	old, now := small(), small()
	old.Tables = append(old.Tables, &table{workload: workload{distinct, 1, echoName}, Date: "yesterday"})
	now.Memory = nil
	now.keep(old)
	if len(now.Tables) != 2 || now.Tables[0].Clients != 1 || len(now.Memory) != 2 {
		t.Errorf("kept: %+v, %+v", now.Tables, now.Memory)
	}
	again := small()
	again.Tables[0].Rows = again.Tables[0].Rows[:2] // without Redis
	again.Tables[0].Rows[1].Rounds[0].Pairs = 800
	again.Tables[0].workOut()
	again.keep(now)
	if len(again.Tables) != 3 || len(again.Tables[1].Rows) != 2 || len(again.Tables[2].Rows) != 4 {
		t.Errorf("kept beside fewer peers: %+v", again.Tables)
	}
	for over, want := range map[string]float64{muxName: 0.8, rueidisName: 1.5} {
		f, why := loaded{distinct, 128, oursName, over, pairsPerSecond}.figure(again)
		if f == nil || f.Median != want {
			t.Errorf("beside %s: %v, %s, want %v", over, f, why, want)
		}
	}
}
