package duration

import (
	"math"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {0, "0ms"}, {850 * time.Millisecond, "850ms"}, {45*time.Second + 999, "45s"},
		{2 * time.Minute, "2m"}, {2*time.Minute + 5*time.Second, "2m05s"}, {12*time.Minute + 5*time.Second, "12m"},
		{3*time.Hour + 5*time.Minute, "3h05m"}, {3*time.Hour + 5*time.Second, "3h"}, {49 * time.Hour, "2d01h"},
		{48*time.Hour + 5*time.Minute, "2d"},
	} {
		if got := Text(c.d); got != c.want {
			t.Errorf("%d is %q, want %q", c.d, got, c.want)
		}
	}
}

// In one output the elapsed and the remaining time never contradict each other.
func TestElapsedIsRoundedDownAndRemainingUp(t *testing.T) {
	for _, c := range []struct {
		d            time.Duration
		passed, left string
	}{
		{0, "<1s", "0ms"}, {511 * time.Millisecond, "<1s", "1s"}, {29*time.Second + 1, "29s", "30s"},
		{9*time.Minute + 59*time.Second + 1, "9m59s", "10m"}, {11*time.Minute + 1, "11m", "12m"},
		{time.Hour - 1, "59m", "1h"}, {Day - time.Second, "23h59m", "1d"}, {2*Day - time.Minute, "1d23h", "2d"},
		{math.MaxInt64, Text(math.MaxInt64), Text(math.MaxInt64)},
	} {
		if passed, left := Elapsed(c.d), Remaining(c.d); passed != c.passed || left != c.left {
			t.Errorf("%s: passed %q, left %q; want %q, %q", c.d, passed, left, c.passed, c.left)
		}
	}
}
