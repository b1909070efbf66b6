package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// benchReport writes outcomes as they come: for people a table for each kind of load with a picture
// below it, else one JSON object for each outcome.
type benchReport struct {
	to      io.Writer
	asJSON  bool
	url     string
	engine  lockkeeper.Guarantees
	every   time.Duration // the time of each measurement
	look    look
	section []*outcome // the outcomes of the present kind of load
}

func newBenchReport(to io.Writer, client *connection, o *benchOptions) *benchReport {
	every := o.span / time.Duration(len(o.loads(nil)))
	return &benchReport{
		to:     to,
		asJSON: o.asJSON,
		url:    lockkeeper.RedactURL(client.url),
		engine: client.Guarantees(),
		every:  every,
		look:   lookOf(to),
	}
}

// begin prints the engine, its guarantees and the computer.
func (r *benchReport) begin() {
	if r.asJSON {
		return
	}
	g := r.engine
	name := r.url
	if _, behind, server := strings.Cut(g.Name, " "); server {
		name += " " + behind // the engine of the server
	}
	fmt.Fprintf(r.to, "%s excludes within %s and survives %s\n", name, g.Reach, g.Survives)
	fmt.Fprintf(r.to, "lk %s, %s/%s, %s, %s for each line\n", version(), runtime.GOOS, runtime.GOARCH,
		plural(runtime.NumCPU(), "CPU"), brief(r.every))
}

// add writes one outcome.
func (r *benchReport) add(o *outcome) {
	if r.asJSON {
		json.NewEncoder(r.to).Encode(r.object(o))
		return
	}
	if len(r.section) > 0 && r.section[0].load != o.load {
		r.end()
	}
	if len(r.section) == 0 {
		r.title(o.load)
	}
	r.section = append(r.section, o)
	fair := ""
	if o.load == loadOne {
		fair = fmt.Sprintf("%.3f", o.Fairness())
	}
	fmt.Fprintf(r.to, "%7d %10s %8s %9s %9s %9s %9s\n", o.clients, grouped(o.PerSecond()), fair,
		brief(o.Took.Quantile(0.5)), brief(o.Took.Quantile(0.9)), brief(o.Took.Quantile(0.99)), brief(o.Took.Max()))
}

func (r *benchReport) title(name string) {
	title, pairs, fair := "a path for each client: from asking to having it", "pairs/s", ""
	switch name {
	case loadOne:
		title, fair = "one path for all clients: from asking to having it", "fairness"
	case loadHandOff:
		title, pairs = "from a release to the next holder", "times/s"
	}
	fmt.Fprintf(r.to, "\n%s\n%7s %10s %8s %9s %9s %9s %9s\n", title, "clients", pairs, fair, "p50", "p90", "p99", "max")
}

// end draws the picture of the last kind of load, if any.
func (r *benchReport) end() {
	if len(r.section) > 0 {
		r.look.draw(r.to, r.section)
	}
	r.section = nil
}

// outcomeJSON is the JSON form of an outcome. Durations are in seconds.
type outcomeJSON struct {
	Engine    string             `json:"engine"`
	Reach     lockkeeper.Reach   `json:"reach"`
	Survives  string             `json:"survives"`
	Load      string             `json:"load"`
	Clients   int                `json:"clients"`
	Seconds   float64            `json:"seconds"`
	Pairs     int64              `json:"pairs"`
	PerSecond float64            `json:"per_second"`
	Fairness  float64            `json:"fairness"`
	Took      map[string]float64 `json:"took"`
	Histogram []stepJSON         `json:"histogram"`
}

type stepJSON struct {
	To    float64 `json:"to"`
	Count uint64  `json:"count"`
}

func (r *benchReport) object(o *outcome) outcomeJSON {
	object := outcomeJSON{
		Engine: r.url, Reach: r.engine.Reach, Survives: string(r.engine.Survives), Load: o.load, Clients: o.clients,
		Seconds: o.Elapsed.Seconds(), Pairs: o.Total(), PerSecond: o.PerSecond(), Fairness: o.Fairness(),
		Took: map[string]float64{
			"p50": o.Took.Quantile(0.5).Seconds(), "p90": o.Took.Quantile(0.9).Seconds(),
			"p99": o.Took.Quantile(0.99).Seconds(), "max": o.Took.Max().Seconds(),
		},
	}
	for i, n := range o.Took.BySteps() {
		if n > 0 {
			object.Histogram = append(object.Histogram, stepJSON{load.Steps()[i].Seconds(), n})
		}
	}
	return object
}

// brief writes a duration in three digits.
func brief(d time.Duration) string {
	value, unit := float64(d), "ns"
	for _, larger := range []string{"µs", "ms", "s"} {
		if value < 999.5 {
			break
		}
		value, unit = value/1000, larger
	}
	switch {
	case unit == "ns" || value >= 99.95:
		return fmt.Sprintf("%.0f%s", value, unit)
	case value >= 9.995:
		return fmt.Sprintf("%.1f%s", value, unit)
	}
	return fmt.Sprintf("%.2f%s", value, unit)
}

// grouped writes a number with separators between its thousands.
func grouped(value float64) string {
	text := fmt.Sprintf("%.0f", value)
	if value < 10 {
		text = fmt.Sprintf("%.1f", value)
	}
	for i := len(text) - 3; i > 0 && value >= 1000; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
