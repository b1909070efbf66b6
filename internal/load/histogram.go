package load

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// A Histogram counts durations in buckets, each 1/32 of its value wide. So a quantile is off by 1/64
// (1.6%) at most, and the memory is fixed at 15 kB. The zero value is empty. It is not safe for
// concurrent use.
type Histogram struct {
	buckets [bucketOfMost + 1]uint64
	n       uint64
	max     time.Duration
}

const (
	finestBits   = 6 // a bucket for each value below 64 ns, and for each 1/32 of an octave above
	halfOctave   = 1 << (finestBits - 1)
	bucketOfMost = (63-finestBits)*halfOctave + 2*halfOctave - 1
)

// bucketOf returns the bucket of a value that is not negative.
func bucketOf(d time.Duration) int {
	shift := max(bits.Len64(uint64(d))-finestBits, 0)
	return shift*halfOctave + int(d>>shift)
}

// middleOf returns the middle of a bucket.
func middleOf(bucket int) time.Duration {
	if bucket < 2*halfOctave {
		return time.Duration(bucket)
	}
	shift := bucket/halfOctave - 1
	from := time.Duration(bucket-shift*halfOctave) << shift
	return from + time.Duration(1)<<shift/2
}

// Add counts a duration; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucketOf(d)]++
	h.n++
	h.max = max(h.max, d)
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// merge adds the counts of other.
func (h *Histogram) merge(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// Quantile returns the duration that the share q of all, of 0 to 1, did not exceed; 0 if empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(middleOf(i), h.max)
		}
	}
	return 0
}

// Steps returns the bounds of coarse histograms: 100 ns, 200 ns, 500 ns, 1 µs, and so on for a day.
var Steps = sync.OnceValue(func() (steps []time.Duration) {
	for unit := 100 * time.Nanosecond; unit < 24*time.Hour; unit *= 10 {
		steps = append(steps, unit, 2*unit, 5*unit)
	}
	return steps
})

// BySteps returns how many durations exceed the step before and not this one, for each of Steps up to
// the last that has any.
func (h *Histogram) BySteps() []uint64 {
	counts := []uint64{}
	for i, n := range h.buckets {
		if n == 0 {
			continue
		}
		at, _ := slices.BinarySearch(Steps(), middleOf(i))
		at = min(at, len(Steps())-1)
		for len(counts) <= at {
			counts = append(counts, 0)
		}
		counts[at] += n
	}
	return counts
}
