package rows

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Rows keep durations in nanoseconds, also where the package lockkeeper writes
// seconds for people: a file stays readable for programs of other versions.
func TestRowsKeepNanoseconds(t *testing.T) {
	b := lockkeeper.Blocker{
		Ref: lockkeeper.Ref{Session: "s", ID: 1}, Why: lockkeeper.HeldBy, Path: "db", Mode: lockkeeper.ModeExclusive,
		Age: 1500 * time.Millisecond, Left: time.Second + 1, Label: lockkeeper.Label{As: "ci"},
	}
	text, err := json.Marshal(details{Blockers: []blocker{blocker(b)}})
	const want = `{"blockers":[{"claim":"s.1","why":"held ` +
		`by","path":"db","mode":"exclusive","age":1500000000,"left":1000000001,"as":"ci"}]}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
	var back details
	if err := json.Unmarshal(text, &back); err != nil || len(back.Blockers) != 1 ||
		lockkeeper.Blocker(back.Blockers[0]) != b {
		t.Errorf("read as %+v, %v", back.Blockers, err)
	}
}
