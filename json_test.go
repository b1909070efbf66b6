package lockkeeper

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A duration in seconds is exact to the nanosecond, and reads back unchanged.
func TestSecondsJSON(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 83200 * time.Millisecond: "83.2", 3 * time.Second: "3", 1: "0.000000001", -1500 * time.Millisecond: "-1.5",
		-time.Millisecond: "-0.001", MaxDuration + 1: "315360000.000000001", Forever - 1: "9223372036.854775806",
	} {
		text, err := json.Marshal(seconds(d))
		if err != nil || string(text) != want {
			t.Errorf("%d is written as %s, %v; want %s", d, text, err, want)
		}
		var back seconds
		if err := json.Unmarshal(text, &back); err != nil || time.Duration(back) != d {
			t.Errorf("%s is read as %d, %v; want %d", text, back, err, d)
		}
	}
	for text, want := range map[string]time.Duration{
		"1.5e3": 1500 * time.Second,
		"2E-3":  2 * time.Millisecond,
		"null":  0,
	} {
		var got seconds
		if err := json.Unmarshal([]byte(text), &got); err != nil || time.Duration(got) != want {
			t.Errorf("%s is read as %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{`"3s"`, "1e30", "true", "99999999999"} {
		var got seconds
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %d, want it refused", text, got)
		}
	}
}

// Every value reads back unchanged; infinite durations are left out.
func TestJSONThereAndBack(t *testing.T) {
	label := Label{As: "ci-17", Note: "nightly", Link: "https://ci/17"}
	target := Target{Path: "db/a", Mode: ModePermits, Units: 1, Limit: 3}
	for _, c := range []struct {
		value         any
		with, without []string
	}{
		{&Status{
			Ref: Ref{"s", 7}, State: Held, Grants: []Grant{{Target: target, InUse: 2, Slot: 2}}, Label: label, Fence: 41,
			Age: 83200 * time.Millisecond, Left: 3 * time.Second, ETA: 2 * time.Minute, Waits: []WaitReason{HeldBy, Frozen},
			Asked: &Asked{By: Ref{"t", 1}, Label: label, Reason: Stolen, Left: 1},
			Blockers: []Blocker{{
				Ref:   Ref{"u", 2},
				Why:   Behind,
				Path:  "db",
				Mode:  ModeShared,
				Age:   1500 * time.Millisecond,
				Left:  time.Hour,
				Label: label,
			}},
		}, []string{`"claim":"s.7"`, `"state":"held"`, `"age":83.2`, `"left":3`, `"eta":120`, `"left":0.000000001`,
			`"age":1.5`, `"left":3600`}, nil},
		{&Status{
			Ref:      Ref{"s", 7},
			State:    Held,
			Left:     Forever,
			Asked:    &Asked{Reason: Revoked, Left: Forever},
			Blockers: []Blocker{{Why: HeldBy, Mode: ModeShared}},
		},
			[]string{`"age":0`}, []string{`"left"`, `"eta"`}},
		{&Status{Ref: Ref{"s", 7}, State: Freezing}, []string{`"left":0`, `"state":"frozen"`}, nil},
		{&Want{
			ID:           1,
			Targets:      []Target{target},
			Wait:         90 * time.Second,
			WriterPolicy: Soft,
			Quiet:        time.Second,
			Steal:        Take,
			After:        2 * time.Second,
			MaxHold:      3 * time.Second,
			Grace:        4 * time.Second,
			Expected:     5 * time.Second,
			Freeze:       6 * time.Second,
			Label:        label,
		}, []string{`"wait":90`, `"quiet":1`, `"after":2`, `"max_hold":3`, `"grace":4`, `"expected":5`, `"freeze":6`}, nil},
		{&Want{ID: 1, Wait: Forever}, nil, []string{"wait", "quiet", "after", "max_hold", "grace", "expected", "freeze"}},
		{&Want{ID: 1}, []string{`"wait":0`}, nil},
		{&Want{ID: 1, Steal: Take, AfterTTL: 500}, []string{`"after_ttl":500`}, []string{`"after":`}},
		{&Want{ID: 1, Steal: Take, After: AfterMeasured}, nil, []string{"after_ttl"}},
		{&Session{ID: "s", TTL: 30 * time.Second, Label: label}, []string{`"ttl":30`}, nil},
	} {
		text, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range c.with {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s should have %s", text, part)
			}
		}
		for _, part := range c.without {
			if strings.Contains(string(text), part) {
				t.Errorf("%s should not have %s", text, part)
			}
		}
		back := reflect.New(reflect.TypeOf(c.value).Elem()).Interface()
		if err := json.Unmarshal(text, back); err != nil || !reflect.DeepEqual(back, c.value) {
			t.Errorf("%s is read as\n%+v, %v; want\n%+v", text, back, err, c.value)
		}
	}
}
