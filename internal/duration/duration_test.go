package duration

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2w3d": 17 * Day, "1d12h": 36 * time.Hour,
		"1.5d": 36 * time.Hour, "250ms": 250 * time.Millisecond, "1w1ns": week + 1,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "3", "-3s", "+3s", "s", "d", "1x", "1.2.3d", "3d4", "99999999w", "15250w15250w",
		"300000h2500000h", "ten"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %s, want it refused", text, got)
		}
	}
}
