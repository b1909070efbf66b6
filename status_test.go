package lockkeeper

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestStatusJSON: an end is told in nanoseconds, and no end by nothing at all.
func TestStatusJSON(t *testing.T) {
	for left, want := range map[time.Duration]bool{Forever: false, 3 * time.Second: true, 0: true} {
		text, err := json.Marshal(Status{Ref: Ref{"s", 7}, State: Held, Left: left, Asked: &Asked{Reason: Stolen, Left: left}})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), `"left"`); (n == 2) != want || !strings.Contains(string(text), `"claim":"s.7"`) || !strings.Contains(string(text), `"state":"held"`) {
			t.Errorf("left %s is written as %s", left, text)
		}
	}
}
