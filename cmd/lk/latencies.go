package main

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// latencies counts how long something took, in buckets that are a 32nd of their
// value wide: its memory is fixed, however much is counted, and what is read from
// it is off by a 64th at most. The zero value is empty. It is for one goroutine.
type latencies struct {
	buckets [bucketOfMost + 1]uint64
	n       uint64
	most    time.Duration
}

const (
	finestBits   = 6 // values below 64 ns have a bucket each, and so has each 32nd of an octave above
	halfOctave   = 1 << (finestBits - 1)
	bucketOfMost = (63-finestBits)*halfOctave + 2*halfOctave - 1
)

// bucketOf is the bucket of a value that is not negative.
func bucketOf(d time.Duration) int {
	shift := max(bits.Len64(uint64(d))-finestBits, 0)
	return shift*halfOctave + int(d>>shift)
}

// middleOf is the middle of a bucket.
func middleOf(bucket int) time.Duration {
	if bucket < 2*halfOctave {
		return time.Duration(bucket)
	}
	shift := bucket/halfOctave - 1
	from := time.Duration(bucket-shift*halfOctave) << shift
	return from + time.Duration(1)<<shift/2
}

func (l *latencies) add(d time.Duration) {
	d = max(d, 0)
	l.buckets[bucketOf(d)]++
	l.n++
	l.most = max(l.most, d)
}

// merge adds all that other has counted.
func (l *latencies) merge(other *latencies) {
	for i, n := range other.buckets {
		l.buckets[i] += n
	}
	l.n += other.n
	l.most = max(l.most, other.most)
}

// quantile is what the share q of all did not exceed, of 0 to 1; 0 of nothing.
func (l *latencies) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(l.n)))
	seen := uint64(0)
	for i, n := range l.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(middleOf(i), l.most)
		}
	}
	return 0
}

// scale are the steps of pictures: 100 ns, 200 ns, 500 ns, 1 µs, and so on for a day.
var scale = func() (steps []time.Duration) {
	for unit := 100 * time.Nanosecond; unit < 24*time.Hour; unit *= 10 {
		steps = append(steps, unit, 2*unit, 5*unit)
	}
	return steps
}()

// bySteps is how many took longer than the step of the scale below, and up to
// this one. It ends with the last step that has any.
func (l *latencies) bySteps() []uint64 {
	counts := []uint64{}
	for i, n := range l.buckets {
		if n == 0 {
			continue
		}
		at, _ := slices.BinarySearch(scale, middleOf(i))
		at = min(at, len(scale)-1)
		for len(counts) <= at {
			counts = append(counts, 0)
		}
		counts[at] += n
	}
	return counts
}
