// Package exposition has counters, gauges and histograms, and writes them in the text format that
// Prometheus reads (version 0.0.4).
//
// The library of Prometheus for Go registers collectors when its package is initialized, which took
// a sixth of every start of lk, whether it served or not. This package does nothing until a
// server makes a [Registry]. Its tests read the text by Prometheus's own parser and linter.
package exposition

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Kind is the type of a metric.
type Kind string

// The kinds.
const (
	KindCounter   Kind = "counter"
	KindGauge     Kind = "gauge"
	kindHistogram Kind = "histogram"
	kindSummary   Kind = "summary"
)

// Registry has metrics by their names. Add all metrics before the first reading; after that it is
// safe for concurrent use.
type Registry struct {
	families []*family // in the order of their names

	mu       sync.Mutex // held by a reading
	before   []func()
	requests atomic.Int32 // that ServeHTTP answers now
}

// mostRequests bounds the requests that wait for a reading; a Prometheus sends one at a time.
const mostRequests = 4

// family is a metric with all its labels.
type family struct {
	name, help string
	kind       Kind
	write      func(t *text, name string)
}

func (r *Registry) add(name, help string, kind Kind, write func(t *text, name string)) {
	at, twice := slices.BinarySearchFunc(r.families, name, func(f *family, name string) int {
		return strings.Compare(f.name, name)
	})
	if twice {
		panic("exposition: two metrics have the name " + name)
	}
	r.families = slices.Insert(r.families, at, &family{name, help, kind, write})
}

// Before makes each reading call look first. No two readings call it at once, so metrics can be parts
// of one look.
func (r *Registry) Before(look func()) { r.before = append(r.before, look) }

// Func adds a metric whose value read returns at each reading.
func (r *Registry) Func(kind Kind, name, help string, read func() float64) {
	r.add(name, help, kind, func(t *text, name string) { t.sample(name, read()) })
}

// Funcs adds a metric that has a value for each of these values of the label; read returns the i-th.
func (r *Registry) Funcs(kind Kind, name, help, label string, values []string, read func(i int) float64) {
	r.add(name, help, kind, func(t *text, name string) {
		for i, value := range values {
			t.sample(name, read(i), label, value)
		}
	})
}

// Info adds a gauge of 1, whose labels (name, value, ...) state something.
func (r *Registry) Info(name, help string, labels ...string) {
	r.add(name, help, KindGauge, func(t *text, name string) { t.sample(name, 1, labels...) })
}

// Counter is a number that only rises. It is safe for concurrent use.
type Counter struct{ n atomic.Uint64 }

// Inc adds 1.
func (c *Counter) Inc() { c.n.Add(1) }

// Counter adds a counter.
func (r *Registry) Counter(name, help string) *Counter {
	c := new(Counter)
	r.Func(KindCounter, name, help, func() float64 { return float64(c.n.Load()) })
	return c
}

// Vector has a T for each value of a label. It is safe for concurrent use.
type Vector[T any] struct {
	mu  sync.RWMutex
	of  map[string]*T
	new func() *T
}

func newVector[T any](make func() *T) *Vector[T] { return &Vector[T]{of: map[string]*T{}, new: make} }

// With returns that of a value, and makes it if there is none.
func (v *Vector[T]) With(value string) *T {
	v.mu.RLock()
	one := v.of[value]
	v.mu.RUnlock()
	if one != nil {
		return one
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if one = v.of[value]; one == nil {
		one = v.new()
		v.of[value] = one
	}
	return one
}

// each calls do for all values of the label, sorted.
func (v *Vector[T]) each(do func(value string, one *T)) {
	v.mu.RLock()
	all := maps.Clone(v.of)
	v.mu.RUnlock()
	for _, value := range slices.Sorted(maps.Keys(all)) {
		do(value, all[value])
	}
}

// Counters adds a counter for each value of a label.
func (r *Registry) Counters(name, help, label string) *Vector[Counter] {
	v := newVector(func() *Counter { return new(Counter) })
	r.add(name, help, KindCounter, func(t *text, name string) {
		v.each(func(value string, c *Counter) { t.sample(name, float64(c.n.Load()), label, value) })
	})
	return v
}

// Histogram counts observations up to each of its bounds. It is safe for concurrent use. A reading
// during an observation may have it in the counts and not yet in the sum.
type Histogram struct {
	bounds []float64       // rising
	counts []atomic.Uint64 // of observations up to the bound that exceed the one before; one more without bound
	sum    atomic.Uint64   // bits of a float64
}

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts v.
func (h *Histogram) Observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Histogram adds a histogram with these bounds, which must rise.
func (r *Registry) Histogram(name, help string, bounds []float64) *Histogram {
	h := newHistogram(bounds)
	r.add(name, help, kindHistogram, func(t *text, name string) { t.histogram(name, h) })
	return h
}

// Histograms adds a histogram for each value of a label.
func (r *Registry) Histograms(name, help, label string, bounds []float64) *Vector[Histogram] {
	v := newVector(func() *Histogram { return newHistogram(bounds) })
	r.add(name, help, kindHistogram, func(t *text, name string) {
		v.each(func(value string, h *Histogram) { t.histogram(name, h, label, value) })
	})
	return v
}

// ServeHTTP writes all metrics. Of many requests at once it refuses all but mostRequests.
func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	defer r.requests.Add(-1)
	if r.requests.Add(1) > mostRequests {
		http.Error(w, "too many requests read the metrics now: try again later", http.StatusServiceUnavailable)
		return
	}
	text := r.Text()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // the reader has gone
}

// Text returns all metrics in the text format.
func (r *Registry) Text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, look := range r.before {
		look()
	}
	var t text
	for _, f := range r.families {
		t.family(f)
	}
	return t.b
}
