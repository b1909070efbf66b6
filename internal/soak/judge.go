package soak

import (
	"fmt"
	"slices"
)

// minThird is the least number of samples in a third that can be judged.
const minThird = 3

// MinSamples is the least number of samples of a soak that can be judged, those of the warm-up included.
const MinSamples = 4 * minThird

// A Quantity is something that a process must not have more and more of.
type Quantity struct {
	Name string
	Unit string // as in "%.1f UNIT"; may be empty
	// A process may grow from the early third to the late one by the larger of Slack, in units, and
	// Ratio, as a part of the early value.
	Slack, Ratio float64
	// Mean compares the means of the thirds, not their medians and minima. It is for rates, which have
	// no saw-teeth, and whose single samples are coarse.
	Mean bool
}

// A Trend is what became of a quantity in the course of a soak.
type Trend struct {
	Quantity
	Samples     int     // without those of the warm-up
	Early, Late float64 // the medians, or means, of the first and the last third
	Grown       float64 // how much of Late-Early is steady growth
	Allowed     float64 // the bound of Grown
}

// Judge returns the trend of samples that were taken at equal distances.
func (q Quantity) Judge(samples []float64) Trend {
	t := Trend{Quantity: q}
	samples = samples[len(samples)/4:]
	t.Samples = len(samples)
	if !t.Judged() {
		return t
	}
	third := len(samples) / 3
	early, middle, late := samples[:third], samples[third:len(samples)-third], samples[len(samples)-third:]
	steady := func(of func([]float64) float64) float64 {
		return min(of(late)-of(early), 2*(of(late)-of(middle)))
	}
	if q.Mean {
		t.Early, t.Late, t.Grown = mean(early), mean(late), steady(mean)
	} else {
		t.Early, t.Late, t.Grown = median(early), median(late), min(steady(median), steady(slices.Min))
	}
	t.Allowed = max(q.Slack, q.Ratio*t.Early)
	return t
}

// Judged reports whether there were enough samples.
func (t *Trend) Judged() bool { return t.Samples >= 3*minThird }

// Fault returns what is wrong, with the figures; "" if nothing is, or if there were too few samples.
func (t *Trend) Fault() string {
	if !t.Judged() || t.Grown <= t.Allowed {
		return ""
	}
	return fmt.Sprintf("%s grows: from %s to %s, steadily by %s in two thirds of the %d samples after the warm-up; "+
		"allowed is %s", t.Name, t.text(t.Early), t.text(t.Late), t.text(t.Grown), t.Samples, t.text(t.Allowed))
}

func (t *Trend) text(v float64) string {
	if t.Unit == "" {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f %s", v, t.Unit)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n/2] + sorted[(n-1)/2]) / 2
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
