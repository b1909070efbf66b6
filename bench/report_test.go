package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// small is a result with every sort of row.
func small() *result {
	t := &table{workload: workload{distinct, 128, muxName}, Rows: []*row{
		{Peer: muxName, Rounds: []sample{{
			Pairs:     1000,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 2 * time.Millisecond,
		}}},
		{Peer: oursName, Rounds: []sample{{
			Pairs:     900,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 3 * time.Millisecond,
		}}},
		{Peer: rueidisName, Rounds: []sample{{
			Pairs:     600,
			Elapsed:   time.Second,
			ClientCPU: 5 * time.Millisecond,
			ServerCPU: 3 * time.Millisecond,
		}}},
		{Peer: etcdName, Failure: "it died"},
	}}
	t.workOut()
	r := &result{
		Tables:  []*table{t},
		How:     map[string]string{muxName: "by hand"},
		Missing: map[string]string{"slock": "it can't be fetched"},
	}
	r.Memory = []occupancy{{oursName, heldOccupation, 1000, 299}, {oursName, lineOccupation, 1000, 401}}
	r.Targets = judge(r)
	return r
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		over     string
		measured float64
		met      bool
		why      string
	}{
		{muxName, 0.9, true, ""},
		{rueidisName, 1.5, false, ""},
		{"slock", 0, false, "slock was not measured"},
		{etcdName, 0, false, diskName + " was not measured"},
	} {
		i := 0
		for targets[i].over != c.over || targets[i].kind != distinct || targets[i].clients != 128 {
			i++
		}
		v := targets[i].judge(small().Tables)
		if (v.Measured != nil) != (c.measured != 0) || v.Measured != nil && v.Measured.Median != c.measured ||
			v.Met != c.met || v.Why != c.why {
			t.Errorf("beside %s: %+v %+v, want %+v", c.over, v, v.Measured, c)
		}
	}
	if v := targets[0].judge(nil); v.Met || v.Why != "the workload was not run" {
		t.Errorf("without tables: %+v", v)
	}
	least := target{
		kind:    distinct,
		clients: 128,
		peer:    oursName,
		over:    muxName,
		metric:  pairsPerSecond,
		bound:   0.8,
		atMost:  true,
	}
	if v := least.judge(small().Tables); v.Met || v.Target != "at most 0.8x" {
		t.Errorf("0.9 for at most 0.8: %+v", v)
	}
}

func TestPrinted(t *testing.T) {
	r := small()
	var plain, markdown strings.Builder
	if err := r.printPlain(&plain); err != nil {
		t.Fatal(err)
	}
	if err := r.printMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"distinct paths, 128 clients", "0.90", etcdName + " (failed)", "it died",
		"slock: it can't be fetched", "G15", "met", "missed"} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("the plain text lacks %q:\n%s", want, plain.String())
		}
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("the markdown lacks %q:\n%s", want, markdown.String())
		}
	}
	cells := 0
	for line := range strings.Lines(markdown.String()) {
		switch n := strings.Count(line, "|"); {
		case n == 0:
			cells = 0
		case cells == 0:
			cells = n
		case n != cells:
			t.Errorf("a line of another number of cells: %s", line)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0.5:        "0.50",
		9.949:      "9.95",
		12.34:      "12.3",
		123.4:      "123",
		999:        "1.0k",
		12345:      "12.3k",
		168_000:    "168k",
		16_277_000: "16.3M",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written as %s, want %s", v, got, want)
		}
	}
}

// What -json writes can be read again as it was.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	var read result
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	f := read.Tables[0].row(oursName).Figures[pairsPerSecond]
	if f.Median != 900 || f.Ratio == nil || f.Ratio.Median != 0.9 || read.Tables[0].Kind != distinct {
		t.Errorf("read again: %s", text)
	}
}
