// Package testmode holds the two flags that all tests of this project share: -long, for the deep
// mode of "make long", and -seed, for the random tests.
//
// Without flags a test binary runs what "make test" runs: every promise once, in little time.
// With -long it repeats, explores and waits for longer.
//
// A random test takes its seed from here, and so prints one line that replays it:
//
//	replay: go test ./engine/disklock -run '^TestImages$' -seed=1795380460734024714
//
// A seed fixes all random choices of a test. It does not fix the schedule of goroutines and
// processes.
package testmode

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	long = flag.Bool("long", false, "run the deep tests, too, as make long does")
	seed = flag.Uint64("seed", 0, "the seed of the random tests; 0 takes one from the clock")
)

// Long reports whether the tests run in the deep mode.
func Long() bool { return *long }

// NeedLong skips t unless the tests run in the deep mode. why says what takes long, and which
// other test covers the behaviour in the short mode.
func NeedLong(t testing.TB, why string) {
	t.Helper()
	if !Long() {
		t.Skip("only with -long: " + why)
	}
}

// Pick returns short, or deep in the deep mode: a number of rounds, a size, a time.
func Pick[T any](short, deep T) T {
	if Long() {
		return deep
	}
	return short
}

// Seed returns the seed of one random test and logs how to replay it. It is the one of -seed, or
// a new one from the clock.
func Seed(t testing.TB) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = fromClock()
	}
	t.Log("replay: " + Replay(t, s))
	return s
}

// Rand returns a source of random choices with the seed of Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Seeds returns the seeds of n random cases of one test: n consecutive ones from the clock, or
// the one of -seed alone. The test has to report Replay of the seed that failed.
func Seeds(n int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if *seed != 0 {
			yield(*seed)
			return
		}
		first := fromClock()
		for i := range uint64(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// Replay returns the command that runs t again with seed s.
func Replay(t testing.TB, s uint64) string {
	mode := ""
	if Long() {
		mode = " -long"
	}
	return fmt.Sprintf("go test %s -run '%s' -seed=%d%s", folder, pattern(t.Name()), s, mode)
}

// last is the seed that fromClock returned last.
var last atomic.Uint64

// fromClock returns a new seed, never 0, and never the same twice within one process. In a bubble
// of testing/synctest time stands still, so the clock alone would repeat itself there. Some bits
// of chance tell processes apart that start in the same moment.
func fromClock() uint64 {
	for {
		before := last.Load()
		next := uint64(time.Now().UnixNano()) ^ rand.Uint64()>>34
		if next != 0 && next != before && last.CompareAndSwap(before, next) {
			return next
		}
	}
}

// pattern returns the value of -run that matches the test of this name alone.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// folder is the folder of the package under test, as an argument of go test at the top of its
// module. Test binaries start in that folder; a test may leave it later.
var folder = func() string {
	start, err := os.Getwd()
	if err != nil {
		return "."
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			rest, _ := filepath.Rel(dir, start)
			return "./" + filepath.ToSlash(rest)
		}
		if dir == filepath.Dir(dir) {
			return "."
		}
	}
}()
