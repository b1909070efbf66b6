package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
)

// The load of BenchmarkPage.
const (
	benchPaths   = 4000
	benchHeld    = 9000 // shared holds at these paths
	benchWaiting = 1000
	benchRate    = 100 // changes a second
	benchTime    = 20 * time.Second
)

// BenchmarkPage measures what the page does to a browser and to its server while 10,000 claims live
// and 100 change each second:
//
//	frame-p95-ms   95 % of the frames took no longer
//	task-max-ms    the longest task of the browser's main thread of at least 50 ms; 0: none
//	task-cpu-ms    the CPU time of the dearest task, which no other process of the machine adds to
//	page-%core     CPU time of the browser's main thread; script-% is the part of scripts, layout-% of styles and layout
//	server-%core   CPU time of the server beyond that without a viewer
func BenchmarkPage(b *testing.B) {
	c := startChromium(b)
	w := newTown(b, nil)
	client := lockkeeper.New(w.engine, lockkeeper.SessionTTL(time.Hour))
	b.Cleanup(func() { client.Close() })
	path := func(i int) string { return fmt.Sprintf("region-%d/host-%d/disk", i%40, i%benchPaths) }
	for i := range benchHeld {
		if _, err := client.Acquire(b.Context(), lockkeeper.Shared(path(i)), lockkeeper.WithAs(fmt.Sprint("job-", i)),
			lockkeeper.WithNote("nightly run")); err != nil {
			b.Fatal(err)
		}
	}
	for i := range benchWaiting {
		if _, err := client.Enqueue(b.Context(), lockkeeper.Exclusive(path(i*3)), lockkeeper.WithAs(fmt.Sprint("next-", i)),
			lockkeeper.WithWait(lockkeeper.Forever)); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go change(ctx, client)

	for b.Loop() {
		alone := cpuOf(b, benchTime/2)
		c.resizes(1360, 860, "light")
		w.login(c, "ops")
		c.awaits(`document.querySelectorAll(".row").length > 20`)
		c.eval(`new Promise((resolve) => setTimeout(resolve, 3000))`)
		c.call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
		c.eval(meter)
		dearest := c.traceTasks()
		before := c.metrics()
		with := cpuOf(b, benchTime)
		after := c.metrics()
		b.ReportMetric(dearest(), "task-cpu-ms")
		share := func(names ...string) (sum float64) {
			for _, name := range names {
				sum += 100 * (after[name] - before[name]) / benchTime.Seconds()
			}
			return sum
		}
		b.ReportMetric(share("TaskDuration"), "page-%core")
		b.ReportMetric(share("ScriptDuration"), "script-%")
		b.ReportMetric(share("LayoutDuration", "RecalcStyleDuration"), "layout-%")
		b.ReportMetric(100*(with-alone), "server-%core")
		for _, name := range []string{"frame-p95-ms", "frame-max-ms", "task-max-ms", "frames/s"} {
			b.ReportMetric(c.eval(fmt.Sprintf("window.measured()[%q]", name)).(float64), name)
		}
		b.ReportMetric(c.eval("performance.memory.usedJSHeapSize").(float64)/1e6, "heap-MB")
	}
}

// metrics returns what the browser counts of the page, durations in seconds.
func (c *chromium) metrics() map[string]float64 {
	var said struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	c.call("Performance.getMetrics", nil, &said)
	all := make(map[string]float64)
	for _, m := range said.Metrics {
		all[m.Name] = m.Value
	}
	return all
}

// traceTasks records the tasks of the page's main thread until the function is called that it returns, which
// returns the CPU time of the dearest one, in milliseconds.
func (c *chromium) traceTasks() (dearest func() float64) {
	type event struct {
		Name, Ph string
		Pid, Tid int
		CPU      float64 `json:"tdur"` // microseconds
		Args     struct{ Name string }
	}
	var all []event
	ended := make(chan struct{})
	c.mu.Lock()
	c.on = map[string]func(json.RawMessage){
		"Tracing.dataCollected": func(text json.RawMessage) {
			var part struct{ Value []event }
			_ = json.Unmarshal(text, &part)
			all = append(all, part.Value...)
		},
		"Tracing.tracingComplete": func(json.RawMessage) { close(ended) },
	}
	c.mu.Unlock()
	c.call("Tracing.start", map[string]any{"traceConfig": map[string]any{
		"includedCategories": []string{"toplevel", "__metadata"}, "excludedCategories": []string{"*"},
	}}, nil)
	return func() (most float64) {
		c.call("Tracing.end", nil, nil)
		<-ended
		c.mu.Lock()
		defer c.mu.Unlock()
		main := make(map[[2]int]bool)
		for _, e := range all {
			if e.Ph == "M" && e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
				main[[2]int{e.Pid, e.Tid}] = true
			}
		}
		for _, e := range all {
			if main[[2]int{e.Pid, e.Tid}] {
				most = max(most, e.CPU/1000)
			}
		}
		return most
	}
}

// cpuOf returns the share of a core that this process uses in the next so long.
func cpuOf(b *testing.B, long time.Duration) float64 {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, began := used(), time.Now()
	<-time.After(long)
	return float64(used()-before) / float64(time.Since(began))
}

// meter begins to measure frames and tasks in the page, and resets what it has measured.
const meter = `(() => {
	const frames = [], tasks = [0];
	let last = 0;
	const began = performance.now();
	const frame = (at) => {
		if (last) frames.push(at - last);
		last = at;
		requestAnimationFrame(frame);
	};
	requestAnimationFrame(frame);
	const seen = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)));
	seen.observe({ type: "longtask" });
	window.measured = () => {
		const sorted = [...frames].sort((a, b) => a - b);
		return { "frame-p95-ms": sorted[Math.floor(0.95 * sorted.length)], "frame-max-ms": sorted.at(-1),
			"task-max-ms": Math.max(...tasks), "frames/s": 1000 * frames.length / (performance.now() - began) };
	};
})()`

// change makes benchRate changes a second until ctx ends: a lock and its release.
func change(ctx context.Context, client *lockkeeper.Client) {
	tick := time.NewTicker(2 * time.Second / benchRate)
	defer tick.Stop()
	var held []*lockkeeper.Hold
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		i := rand.IntN(benchPaths)
		h, err := client.Acquire(ctx, lockkeeper.Exclusive(fmt.Sprintf("region-%d/short-%d", i%40, i)),
			lockkeeper.WithAs(fmt.Sprint("short-", i)), lockkeeper.WithWait(0))
		if err == nil {
			held = append(held, h)
		}
		if len(held) > 50 || err != nil && len(held) > 0 {
			_ = held[0].Release(ctx)
			held = held[1:]
		}
	}
}
