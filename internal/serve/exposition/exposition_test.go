package exposition

import (
	"bytes"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// parsed returns the metrics as Prometheus reads them.
func parsed(t *testing.T, r *Registry) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(r.Text()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.Text())
	}
	return families
}

// Prometheus's own parser reads what was registered, and writes the same text, whatever helps and
// labels contain.
func TestPrometheusReadsTheText(t *testing.T) {
	const odd = "a \"quote\", a \\ and\na line \u00e4"
	var r Registry
	c := r.Counters("b_total", "Help with "+odd, "why")
	c.With(odd).Inc()
	c.With("a").Inc()
	c.With("a").Inc()
	r.Counter("a_total", "Nothing yet.")
	r.Func(KindGauge, "g", "Infinite.", func() float64 { return math.Inf(1) })
	r.Func(KindGauge, "h", "Unknown.", math.NaN)
	r.Funcs(KindCounter, "many_total", "Many.", "op", []string{"x", "y"}, func(i int) float64 { return float64(i) * 1e9 })
	r.Info("info", "1.", "version", "v1", "go", odd)
	h := r.Histogram("took_seconds", "Times.", []float64{.001, 1, 10})
	for _, v := range []float64{0, .001, .5, 10, 11, 1e7} {
		h.Observe(v)
	}
	r.Histograms("by_seconds", "Times.", "op", []float64{1}).With("x").Observe(2)
	families := parsed(t, &r)
	var again bytes.Buffer
	for _, f := range r.families {
		if _, err := expfmt.MetricFamilyToText(&again, families[f.name]); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(r.Text()), again.String(); got != want {
		t.Errorf("the text is\n%s\nPrometheus writes\n%s", got, want)
	}
	var counts []uint64
	took := families["took_seconds"].GetMetric()[0].GetHistogram()
	for _, b := range took.GetBucket() {
		counts = append(counts, b.GetCumulativeCount())
	}
	if !slices.Equal(counts, []uint64{2, 3, 4, 6}) || took.GetSampleSum() != 1e7+21.501 {
		t.Errorf("up to the bounds are %v, in all %v", counts, took.GetSampleSum())
	}
}

// All metrics of one reading come from one look, and no two looks are at once.
func TestReadingIsOneLook(t *testing.T) {
	var r Registry
	looks := 0
	r.Before(func() { looks++ })
	r.Func(KindGauge, "a", "", func() float64 { return float64(looks) })
	r.Func(KindGauge, "b", "", func() float64 { return float64(looks) })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				text := string(r.Text())
				a, b := valueIn(text, "a"), valueIn(text, "b")
				if a != b || a == "" {
					t.Errorf("a is %q and b %q in one reading", a, b)
				}
			}
		})
	}
	wg.Wait()
}

// valueIn returns the value of a metric without labels in a text.
func valueIn(text, name string) string {
	_, value, _ := strings.Cut(text, "\n"+name+" ")
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// No observation is lost.
func TestObservationsAtOnce(t *testing.T) {
	var r Registry
	h, c := r.Histograms("h", "", "op", []float64{1}), r.Counters("c_total", "", "op")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				c.With(fmt.Sprint(i % 3)).Inc()
				h.With("x").Observe(float64(i % 4))
			}
		})
	}
	wg.Wait()
	got := parsed(t, &r)["h"].GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != 4000 || got.GetSampleSum() != 6000 || got.GetBucket()[0].GetCumulativeCount() != 2000 {
		t.Errorf("of 4000 observations: %v", got)
	}
	if text := string(r.Text()); !strings.Contains(text, `c_total{op="0"} 1336`) {
		t.Errorf("of 4000 counts: %s", text)
	}
}

// Dashboards find the figures of the process.
func TestRuntimeAndProcess(t *testing.T) {
	var r Registry
	r.AddRuntime()
	families := parsed(t, &r)
	at := func(name string) float64 {
		m := families[name].GetMetric()
		if len(m) == 0 {
			t.Fatalf("%s is missing", name)
		}
		return m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
	}
	for _, name := range []string{"go_goroutines", "go_info", "go_memstats_sys_bytes", "go_memstats_mallocs_total"} {
		if at(name) < 1 {
			t.Errorf("%s is %v", name, at(name))
		}
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	if rss := at("process_resident_memory_bytes"); rss < 1e6 || rss > at("process_virtual_memory_bytes") {
		t.Errorf("the memory is %v of %v bytes", rss, at("process_virtual_memory_bytes"))
	}
	if open := at("process_open_fds"); open < 3 || open > at("process_max_fds") {
		t.Errorf("%v of %v files are open", open, at("process_max_fds"))
	}
	if began := at("process_start_time_seconds"); began < 1.5e9 || at("process_cpu_seconds_total") < 0 {
		t.Errorf("the process began at %v", began)
	}
}

// A flood of requests is refused, and does not wait in a queue.
func TestRequestsAreBounded(t *testing.T) {
	var r Registry
	began, proceed := make(chan bool, 100), make(chan bool)
	r.Before(func() {
		began <- true
		<-proceed
	})
	codes := make(chan int, mostRequests+1)
	serve := func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		codes <- w.Code
	}
	go serve()
	<-began
	r.requests.Add(mostRequests - 1) // others wait
	serve()
	if code := <-codes; code != 503 {
		t.Errorf("one too many is answered %d", code)
	}
	close(proceed)
	if code := <-codes; code != 200 {
		t.Errorf("the first is answered %d", code)
	}
}
