package page_test

import (
	"context"
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
		c.eval(meter)
		with := cpuOf(b, benchTime)
		b.ReportMetric(100*(with-alone), "server-%core")
		for _, name := range []string{"frame-p95-ms", "frame-max-ms", "task-max-ms", "frames/s"} {
			b.ReportMetric(c.eval(fmt.Sprintf("window.measured()[%q]", name)).(float64), name)
		}
		b.ReportMetric(c.eval("performance.memory.usedJSHeapSize").(float64)/1e6, "heap-MB")
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
