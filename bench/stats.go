package main

import (
	"slices"
	"time"
)

// spread is the middle and the ends of some figures.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf is the zero spread if there are no figures.
func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	return spread{median(sorted), sorted[0], sorted[len(sorted)-1]}
}

// median of sorted figures; of two in the middle it is their mean.
func median(sorted []float64) float64 {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// perPair is so much time for each pair, in microseconds.
func perPair(d time.Duration, pairs int64) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(pairs)
}
