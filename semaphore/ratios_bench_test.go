package semaphore_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	ratios      = flag.Bool("ratios", false, "let TestRatios compare canal with its peers")
	ratioShapes = flag.String("shapes", "", "a regular expression: the shapes that TestRatios measures")
	ratioRounds = flag.Int("rounds", 15, "how often TestRatios measures each peer")
	ratioTime   = flag.Duration("round", 15*time.Millisecond, "how long one measurement of TestRatios takes, about")
)

// TestRatios prints how fast canal is beside its peers. Benchmarks run one after
// the other, and the machine is not the same a minute later; here each round
// measures all peers of a shape, in an order of its own, and what is printed is
// the median of the rounds' ratios, with the quartiles:
//
//	go test ./semaphore -run TestRatios -ratios -v
//
// It asserts nothing.
func TestRatios(t *testing.T) {
	if !*ratios {
		t.Skip("measures for about a minute: -ratios lets it")
	}
	chosen := regexp.MustCompile(*ratioShapes)
	for _, s := range shapes() {
		if chosen.MatchString(s.name) {
			t.Log("\n" + compare(&s).String())
		}
	}
}

// comparison is what the rounds measured in one shape.
type comparison struct {
	shape   *shape
	nanos   [][]float64 // of one operation, by peer and round
	granted []float64   // the part of the operations that got a slot, by peer
}

func compare(s *shape) *comparison {
	f := s.field()
	c := &comparison{s, make([][]float64, len(s.peers)), make([]float64, len(s.peers))}
	loops, n := make([]loop, len(s.peers)), make([]int, len(s.peers))
	for i, p := range s.peers {
		loops[i] = p.ready(f)
		n[i] = s.enough(loops[i])
	}
	for range *ratioRounds {
		for _, i := range rand.Perm(len(loops)) {
			runtime.GC()            // the garbage of the one before is not this one's
			s.run(loops[i], s.keys) // and the caches are
			start := time.Now()
			granted := s.run(loops[i], n[i])
			c.nanos[i] = append(c.nanos[i], float64(time.Since(start))/float64(n[i]))
			c.granted[i] += float64(granted) / float64(n[i]) / float64(*ratioRounds)
		}
	}
	return c
}

// enough is how many operations take about as long as a measurement should. Every
// key was used twice then.
func (s *shape) enough(work loop) int {
	s.run(work, 2*s.keys)
	for n := 1024; ; n *= 2 {
		start := time.Now()
		s.run(work, n)
		if took := time.Since(start); took > *ratioTime/4 {
			return int(float64(n) * float64(*ratioTime) / float64(took))
		}
	}
}

// String is a table. The last column is how many times as fast as the peer canal
// is: by its key, which is the first of the peers.
func (c *comparison) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s%10s%10s   %s\n", c.shape.name, "ns/op", "granted", "canal is so many times as fast (quartiles)")
	for i, p := range c.shape.peers {
		ratios := make([]float64, *ratioRounds)
		for round := range ratios {
			ratios[round] = c.nanos[i][round] / c.nanos[0][round]
		}
		fmt.Fprintf(&b, "  %-34s%10.1f%10.3f   %.2f (%.2f to %.2f)\n", p.name, quantile(c.nanos[i], 2), c.granted[i],
			quantile(ratios, 2), quantile(ratios, 1), quantile(ratios, 3))
	}
	return b.String()
}

// quantile is the value below which so many quarters of all are.
func quantile(values []float64, quarters int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*quarters/4]
}
