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
//
// Seeds come from the clock, or from the number in the environment variable TEST_SEED, which CI
// sets to the id of the commit: each commit is tested with random cases of its own, and another
// run on the same commit has the same ones.
package testmode

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	long = flag.Bool("long", false, "run the deep tests, too, as make long does")
	seed = flag.Uint64("seed", 0, "the seed of the random tests; 0 takes one from TEST_SEED or the clock")
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
// a new one.
func Seed(t testing.TB) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = newSeed(t)
	}
	t.Log("replay: " + Replay(t, s))
	return s
}

// Rand returns a source of random choices with the seed of Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Seeds returns the seeds of n random cases of t: n consecutive new ones, or the one of -seed
// alone. The test has to report Replay of the seed that failed.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if *seed != 0 {
			yield(*seed)
			return
		}
		first := newSeed(t)
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

// newSeed returns a new seed for t, never 0.
func newSeed(t testing.TB) uint64 {
	base := os.Getenv("TEST_SEED")
	if base == "" {
		return fromClock()
	}
	n, err := strconv.ParseUint(base, 10, 64)
	if err != nil {
		t.Fatalf("TEST_SEED is %q: it must be a number from 0 to 2^64-1", base)
	}
	return derived(n, t.Name())
}

// taken counts the seeds that derived gave to each test.
var taken = struct {
	sync.Mutex
	by map[string]uint64
}{by: map[string]uint64{}}

// derived returns a seed, never 0, that depends on base, on the name of the test, and on how often
// the test took one before: a test that runs twice has two seeds.
func derived(base uint64, name string) uint64 {
	taken.Lock()
	defer taken.Unlock()
	taken.by[name]++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", base, taken.by[name], name))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
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
