package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

func TestBriefAndGrouped(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:           "0ns",
		999:         "999ns",
		1000:        "1.00µs",
		71234:       "71.2µs",
		99_960:      "100µs",
		999_600:     "1.00ms",
		9_996_000:   "10.0ms",
		time.Minute: "60.0s",
		time.Hour:   "3600s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	for value, want := range map[float64]string{
		0:       "0.0",
		9.96:    "10.0",
		12.4:    "12",
		999.6:   "1000",
		1000:    "1,000",
		1234567: "1,234,567",
	} {
		if got := grouped(value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
}

// sampled is an outcome that had these latencies in one second.
func sampled(name string, clients int, took map[time.Duration]int) *outcome {
	o := &outcome{name, clients, &load.Result{Elapsed: time.Second, Pairs: make([]int64, clients)}}
	for d, n := range took {
		for i := range n {
			o.Took.Add(d)
			o.Pairs[i%clients]++
		}
	}
	return o
}

func samples() []*outcome {
	return []*outcome{
		sampled(loadHandOff, 3, map[time.Duration]int{
			70 * time.Microsecond:  300,
			130 * time.Microsecond: 100,
			900 * time.Microsecond: 1,
		}),
		sampled(loadDistinct, 1, map[time.Duration]int{
			40 * time.Microsecond: 1000,
			90 * time.Microsecond: 400,
			3 * time.Millisecond:  2,
		}),
		sampled(loadDistinct, 16, map[time.Duration]int{90 * time.Microsecond: 3200, 400 * time.Microsecond: 1600}),
		sampled(loadOne, 2, map[time.Duration]int{800 * time.Microsecond: 3}),
	}
}

// The whole report, as it goes into a pipe.
func TestBenchReport(t *testing.T) {
	var got strings.Builder
	r := benchReport{to: &got, look: look{width: plainWidth}}
	for _, o := range samples() {
		r.add(o)
	}
	r.end()
	if got.String() != wantReport {
		t.Errorf("got\n%s\nwant\n%s", got.String(), wantReport)
	}
}

const wantReport = `
from a release to the next holder
clients    times/s                p50       p90       p99       max
      3        401             70.7µs     130µs     130µs     900µs
   up to  3 clients
   100µs  ############################################################
   200µs  ####################
   500µs
     1ms  .

a path for each client: from asking to having it
clients    pairs/s                p50       p90       p99       max
      1      1,402             40.4µs    89.1µs    89.1µs    3.00ms
     16      4,800             89.1µs     397µs     397µs     400µs
   up to  1 client                            16 clients
    50µs  ##################################
   100µs  ##############                      ##################################
   200µs
   500µs                                      #################
     1ms
     2ms
     5ms  .

one path for all clients: from asking to having it
clients    pairs/s fairness       p50       p90       p99       max
      2        3.0    0.900     795µs     795µs     795µs     800µs
   up to  2 clients
     1ms  ############################################################
`

// The picture fits the width of the terminal.
func TestPicture(t *testing.T) {
	for name, c := range map[string]struct {
		look look
		want string
	}{
		"narrow": {look{width: 30}, `   up to  1 client
    50µs  ####################
   100µs  ########
   200µs
   500µs
     1ms
     2ms
     5ms  .
   up to  16 clients
   100µs  ####################
   200µs
   500µs  ##########
`},
		"blocks": {look{width: 50, blocks: true}, `   up to  1 client             16 clients
    50µs  ███████████████████
   100µs  ███████▋             ███████████████████
   200µs
   500µs                       █████████▌
     1ms
     2ms
     5ms  ▏
`},
		"colored": {look{width: 20, blocks: true, color: true}, strings.ReplaceAll(`   up to  1 client
    50µs  [██████████]
   100µs  [████]
   200µs
   500µs
     1ms
     2ms
     5ms  [▏]
   up to  16 clients
   100µs  [██████████]
   200µs
   500µs  [█████]
`, "[", "\x1b[36m")},
	} {
		var got strings.Builder
		c.look.draw(&got, samples()[1:3])
		if got.String() != strings.ReplaceAll(c.want, "]", "\x1b[0m") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.String(), c.want)
		}
	}
}

// Output that is no terminal has no escape sequences.
func TestLookOfNoTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("LC_ALL", "C.UTF-8")
	if got := lookOf(&strings.Builder{}); got != (look{width: plainWidth}) {
		t.Errorf("got %+v", got)
	}
}

// Workers hand a path off until the window ends, and nobody is left in line.
func TestRelayMeasuresHandOffs(t *testing.T) {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	r := newRelay("x/line")
	w := workload{loadHandOff, handOffClients, func(w *load.Worker) error { return r.run(client, w) }}
	out, err := w.measure(t.Context(), w.prepare(100*time.Millisecond))
	if err != nil || out.Total() == 0 || out.Took.Count() == 0 || r.inLine.Load() != 0 {
		t.Errorf("%v: %d hand-offs, %d times, %d still in line", err, out.Total(), out.Took.Count(), r.inLine.Load())
	}
}
