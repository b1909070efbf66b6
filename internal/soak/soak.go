package soak

import (
	"fmt"
	"strings"
	"time"
)

// Quantities of a Go process, and of services that are not Go's.
var (
	heap = Quantity{Name: "live heap", Unit: "MB", Slack: 1, Ratio: 0.1}
	// memory of a service has caches that fill for long.
	memory     = Quantity{Name: "memory", Unit: "MB", Slack: 8, Ratio: 0.1}
	goroutines = Quantity{Name: "the number of goroutines", Slack: 8, Ratio: 0.05}
	files      = Quantity{Name: "the number of open files", Slack: 8, Ratio: 0.05}
	disk       = Quantity{Name: "the size of the files", Unit: "MB", Slack: 8, Ratio: 0.1}
	cpu        = Quantity{Name: "CPU time of an operation", Unit: "ms", Slack: 0.2, Ratio: 0.5, Mean: true}
)

// A Part is a process of a soak, or the processes of one service, with its samples.
type Part struct {
	Name    string // of the engine and the process, such as "postgres: server"
	Samples []Sample
	Rounds  []Round
	Tooth   Tooth
	// Short: the soak is too short to judge the cost of operations. Databases tidy up in the background
	// once in half a minute or so, and on a busy machine all costs vary.
	Short bool
}

// A Tooth is the longest period of a saw-tooth of a process, and its height. If a third of a soak is
// shorter than the period, growth by the height is allowed; else the thirds can be compared.
type Tooth struct {
	Operations int64
	Heap, Disk float64 // MB
}

// A Round is the work between two samples: the CPU time of the part, and the operations of its engine.
type Round struct {
	CPU        time.Duration
	Operations int64
}

// Report judges the parts. It returns a table in Markdown, and a line for each fault.
func Report(parts []*Part) (table string, faults []string) {
	var b strings.Builder
	b.WriteString("| process | operations | live heap, memory | goroutines | open files | its files | CPU/operation |\n")
	b.WriteString("| --- | --: | --: | --: | --: | --: | --: |\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "| %s | %d |", p.Name, p.Operations())
		trends := p.Trends()
		for i := range trends {
			t := &trends[i]
			b.WriteString(" " + t.cell() + " |")
			if wrong := t.Fault(); wrong != "" && !(p.Short && t.Mean) {
				faults = append(faults, p.Name+": "+wrong)
			}
		}
		b.WriteString("\n")
	}
	return b.String(), faults
}

// Operations returns the operations of all rounds.
func (p *Part) Operations() (sum int64) {
	for _, r := range p.Rounds {
		sum += r.Operations
	}
	return sum
}

// Trends returns the trends of all quantities, in the order of the columns of [Report].
func (p *Part) Trends() []Trend {
	const mega = 1e6
	heap, disk := heap, disk
	if p.Operations()/4 < p.Tooth.Operations { // after the warm-up a third is a quarter of all
		heap.Slack, disk.Slack = heap.Slack+p.Tooth.Heap, disk.Slack+p.Tooth.Disk
	}
	of := func(q Quantity, value func(*Sample) float64) Trend {
		var values []float64
		for i := range p.Samples {
			values = append(values, value(&p.Samples[i]))
		}
		return q.Judge(values)
	}
	main := of(heap, func(s *Sample) float64 { return float64(s.Heap) / mega })
	if len(p.Samples) > 0 && p.Samples[0].Heap == 0 {
		main = of(memory, func(s *Sample) float64 { return float64(s.Memory) / mega })
	}
	var rates []float64
	for _, r := range p.Rounds {
		if r.Operations > 0 {
			rates = append(rates, r.CPU.Seconds()*1e3/float64(r.Operations))
		}
	}
	return []Trend{
		main,
		of(goroutines, func(s *Sample) float64 { return float64(s.Goroutines) }),
		of(files, func(s *Sample) float64 { return float64(s.Files) }),
		of(disk, func(s *Sample) float64 { return float64(s.Disk) / mega }),
		cpu.Judge(rates),
	}
}

// cell returns the early and the late value for a table.
func (t *Trend) cell() string {
	switch {
	case !t.Judged():
		return "too few samples"
	case t.Early == 0 && t.Late == 0:
		return "–"
	}
	return fmt.Sprintf("%s → %s", t.text(t.Early), strings.TrimSpace(t.text(t.Late)))
}
