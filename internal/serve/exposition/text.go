package exposition

import (
	"math"
	"strconv"
	"strings"
)

// text is metrics in the text format:
//
//	# HELP name what it means
//	# TYPE name counter
//	name{label="value"} 17
//
// A histogram has a sample name_bucket for each bound, which counts all observations up to it, then
// name_sum and name_count.
type text struct{ b []byte }

// The escapes of the format.
var (
	inHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	inLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func (t *text) family(f *family) {
	t.b = append(t.b, "# HELP "+f.name+" "+inHelp.Replace(f.help)+"\n# TYPE "+f.name+" "+string(f.kind)+"\n"...)
	f.write(t, f.name)
}

// sample writes a value with labels: name, value, ...
func (t *text) sample(name string, value float64, labels ...string) {
	t.b = append(t.b, name...)
	for i := 0; i < len(labels); i += 2 {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		t.b = append(t.b, separator+labels[i]+`="`+inLabel.Replace(labels[i+1])+`"`...)
	}
	if len(labels) > 0 {
		t.b = append(t.b, '}')
	}
	t.b = append(append(t.b, ' '), number(value)+"\n"...)
}

func (t *text) histogram(name string, h *Histogram, labels ...string) {
	count := uint64(0)
	for i := range h.counts {
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		count += h.counts[i].Load()
		t.sample(name+"_bucket", float64(count), append(labels[:len(labels):len(labels)], "le", number(bound))...)
	}
	t.sample(name+"_sum", math.Float64frombits(h.sum.Load()), labels...)
	t.sample(name+"_count", float64(count), labels...)
}

// number writes a value as the format has it: NaN, +Inf and -Inf included.
func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
