package exposition

import (
	"runtime"
	"time"
)

// AddRuntime adds what dashboards of Go programs show, under the names that the library of Prometheus
// gives them: go_…, and on Linux process_….
func (r *Registry) AddRuntime() {
	var m runtime.MemStats
	r.Before(func() { runtime.ReadMemStats(&m) })
	r.Info("go_info", "1; its label tells the version of Go.", "version", runtime.Version())
	r.Func(KindGauge, "go_goroutines", "Goroutines that exist.", func() float64 { return float64(runtime.NumGoroutine()) })
	r.Func(KindGauge, "go_sched_gomaxprocs_threads", "Threads that may run Go code at once.",
		func() float64 { return float64(runtime.GOMAXPROCS(0)) })
	r.add("go_gc_duration_seconds", "Pauses of the program by garbage collections.", kindSummary,
		func(t *text, name string) {
			t.sample(name+"_sum", time.Duration(m.PauseTotalNs).Seconds())
			t.sample(name+"_count", float64(m.NumGC))
		})
	for _, s := range []struct {
		kind       Kind
		name, help string
		value      *uint64
	}{
		{KindGauge, "alloc_bytes", "Bytes of objects on the heap.", &m.HeapAlloc},
		{KindCounter, "alloc_bytes_total", "Bytes that were allocated on the heap, freed ones included.", &m.TotalAlloc},
		{KindCounter, "frees_total", "Objects of the heap that were freed.", &m.Frees},
		{KindGauge, "gc_sys_bytes", "Bytes that garbage collection uses for itself.", &m.GCSys},
		{KindGauge, "heap_alloc_bytes", "Bytes of objects on the heap.", &m.HeapAlloc},
		{KindGauge, "heap_idle_bytes", "Bytes of the heap that nothing uses.", &m.HeapIdle},
		{KindGauge, "heap_inuse_bytes", "Bytes of the heap with objects in them.", &m.HeapInuse},
		{KindGauge, "heap_objects", "Objects on the heap.", &m.HeapObjects},
		{KindGauge, "heap_released_bytes", "Bytes of the heap that were given back to the system.", &m.HeapReleased},
		{KindGauge, "heap_sys_bytes", "Bytes of the heap that the system gave.", &m.HeapSys},
		{KindCounter, "mallocs_total", "Objects that were allocated on the heap.", &m.Mallocs},
		{KindGauge, "next_gc_bytes", "Size of the heap at which the next garbage collection begins.", &m.NextGC},
		{KindGauge, "stack_inuse_bytes", "Bytes of stacks.", &m.StackInuse},
		{KindGauge, "sys_bytes", "Bytes that the system gave the program.", &m.Sys},
	} {
		r.Func(s.kind, "go_memstats_"+s.name, s.help, func() float64 { return float64(*s.value) })
	}
	r.Func(KindGauge, "go_memstats_last_gc_time_seconds", "When the last garbage collection ended, since 1970.",
		func() float64 { return float64(m.LastGC) / 1e9 })
	r.addProcess()
}
