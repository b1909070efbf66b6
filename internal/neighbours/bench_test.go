package neighbours

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkNeighbours reports by how much each attack makes the victim's 99th percentile longer
// than a harmless neighbour does: the median of five comparisons.
func BenchmarkNeighbours(b *testing.B) {
	const rounds, pairs = 5, 1000
	for i := range attacks {
		at := &attacks[i]
		b.Run(at.name, func(b *testing.B) {
			var ratios []float64
			var p99, most time.Duration
			s := newSite(b)
			before := s.uses()
			var used uses
			for b.Loop() {
				for range rounds {
					beside, attacked, u := s.compare(at, at.size, pairs)
					ratios = append(ratios, ratio(attacked, beside))
					p99, most, used = max(p99, attacked.p99), max(most, attacked.max), used.worst(u)
				}
			}
			s.check(at, before, used)
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "p99-ratio")
			b.ReportMetric(float64(p99.Microseconds())/1000, "ms-worst-p99")
			b.ReportMetric(float64(most.Microseconds())/1000, "ms-longest")
			b.ReportMetric(float64(used.memory>>20), "MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}
