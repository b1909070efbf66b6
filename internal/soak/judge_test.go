package soak

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// series returns n samples.
func series(n int, value func(i float64) float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = value(float64(i))
	}
	return all
}

// Only what all samples of a third share can be growth: saw-teeth, warm-ups, steps and noise are none.
func TestJudge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	tooth := func(i, period float64) float64 { return math.Mod(i, period) / period }
	q := Quantity{Name: "memory", Unit: "MB", Slack: 1, Ratio: 0.1}
	for name, c := range map[string]struct {
		values func(i float64) float64
		grows  bool
	}{
		"flat":                    {func(float64) float64 { return 50 }, false},
		"noise":                   {func(float64) float64 { return 50 + 20*random.Float64() }, false},
		"a warm-up":               {func(i float64) float64 { return min(50, 5*i) }, false},
		"saw-teeth":               {func(i float64) float64 { return 50 + 40*tooth(i, 7) }, false},
		"teeth as long as thirds": {func(i float64) float64 { return 50 + 40*tooth(i, 28) }, false},
		"teeth that get higher":   {func(i float64) float64 { return 50 + i*tooth(i, 7) }, false},
		"dips that get shallower": {func(i float64) float64 {
			if math.Mod(i, 7) == 0 {
				return 50 + 0.3*i
			}
			return 90
		}, false},
		"a step after the warm-up": {func(i float64) float64 {
			if i < 60 {
				return 50
			}
			return 80
		}, false},
		"one high sample at the end": {func(i float64) float64 { return 50 + max(0, i-118)*1000 }, false},
		"shrinking":                  {func(i float64) float64 { return 500 - i }, false},
		"within the bound":           {func(i float64) float64 { return 50 + 0.07*i }, false},
		"above the bound":            {func(i float64) float64 { return 50 + 0.1*i }, true},
		"a leak below saw-teeth":     {func(i float64) float64 { return 50 + 40*tooth(i, 7) + 0.2*i }, true},
		"a leak in noise":            {func(i float64) float64 { return 50 + 5*random.Float64() + 0.5*i }, true},
		"a leak that gets faster":    {func(i float64) float64 { return 50 + i*i/500 }, true},
	} {
		trend := q.Judge(series(120, c.values))
		if wrong := trend.Fault(); (wrong != "") != c.grows {
			t.Errorf("%s: fault %q, want one: %t (%+v)", name, wrong, c.grows, trend)
		}
	}
}

// A rate is judged by its means: single samples are coarse, and have no minimum that counts.
func TestJudgeOfRates(t *testing.T) {
	coarse := func(rise float64) func(float64) float64 {
		return func(i float64) float64 {
			if math.Mod(i, 3) != 0 {
				return 0
			}
			return 3 * (1 + rise*i/120)
		}
	}
	for rise, want := range map[float64]bool{0: false, 0.5: false, 3: true} {
		trend := cpu.Judge(series(120, coarse(rise)))
		if wrong := trend.Fault(); (wrong != "") != want {
			t.Errorf("a rise by %g: fault %q, want one: %t", rise, wrong, want)
		}
	}
}

func TestTooFewSamples(t *testing.T) {
	trend := heap.Judge(series(10, func(i float64) float64 { return i * 100 }))
	if trend.Judged() || trend.Fault() != "" {
		t.Errorf("judged by %d samples: %s", trend.Samples, trend.Fault())
	}
}

// soaked returns a part with a heap that grows by a rate, in MB an operation.
func soaked(rate float64) *Part {
	p := &Part{Name: "disk"}
	for i := range 120 {
		p.Samples = append(p.Samples, Sample{
			Heap: int64((10 + rate*100*float64(i)) * 1e6), Goroutines: 20, Files: 9, Disk: 5e6,
		})
		p.Rounds = append(p.Rounds, Round{CPU: 30 * time.Millisecond, Operations: 100})
	}
	return p
}

// A fault names the process, the quantity, the figures and the bound.
func TestReport(t *testing.T) {
	table, faults := Report([]*Part{soaked(0), soaked(0.001)})
	want := "disk: live heap grows: from 14.45 MB to 20.45 MB, steadily by 6.00 MB in two thirds of the 90 samples " +
		"after the warm-up; allowed is 1.45 MB"
	if len(faults) != 1 || faults[0] != want {
		t.Errorf("faults %q, want %q", faults, want)
	}
	line := "| disk | 12000 | 10.00 MB → 10.00 MB | 20 → 20 | 9 → 9 | 5.00 MB → 5.00 MB | 0.30 ms → 0.30 ms |\n"
	if !strings.Contains(table, line) {
		t.Errorf("the table lacks %q:\n%s", line, table)
	}
}

// Half a tooth of a saw looks like growth. It is allowed in a soak whose thirds are shorter than a tooth,
// and in no longer one.
func TestTooth(t *testing.T) {
	for operations, want := range map[int64]int{3001: 0, 3000: 1} {
		p := soaked(0.001)
		p.Tooth = Tooth{Operations: operations, Heap: 6}
		if _, faults := Report([]*Part{p}); len(faults) != want {
			t.Errorf("a tooth of %d operations in a soak of %d: faults %q, want %d", operations, p.Operations(), faults,
				want)
		}
	}
}

// The cost of operations is judged in long soaks alone.
func TestShort(t *testing.T) {
	p := soaked(0)
	for i := range p.Rounds {
		p.Rounds[i].CPU *= time.Duration(i)
	}
	_, faults := Report([]*Part{p})
	if len(faults) != 1 || !strings.HasPrefix(faults[0], "disk: CPU time of an operation") {
		t.Errorf("faults %q, want one of the CPU time", faults)
	}
	p.Short = true
	if _, faults := Report([]*Part{p}); len(faults) > 0 {
		t.Errorf("a short soak has the faults %q", faults)
	}
}
