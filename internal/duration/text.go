package duration

import (
	"fmt"
	"math"
	"time"
)

// Elapsed writes how long something has gone on, rounded down.
func Elapsed(d time.Duration) string {
	if d < time.Second {
		return "<1s"
	}
	return Text(d)
}

// Remaining writes how long something still goes on, rounded up: a lock just granted for 30s does
// not show 29s, and a lock that is not over never shows "0s".
func Remaining(d time.Duration) string {
	unit := time.Second
	switch {
	case d > Day:
		unit = time.Hour
	case d > 10*time.Minute:
		unit = time.Minute
	}
	if rest := d % unit; rest > 0 && d < math.MaxInt64-unit {
		d += unit - rest
	}
	return Text(d)
}

// Exact writes a duration as the user gave it: "2.5s".
func Exact(d time.Duration) string {
	if d > time.Second && d%time.Second != 0 {
		return d.String()
	}
	return Text(d)
}

// Text writes a duration in at most two units, rounded down: "9m59s", "2h05m", "3d".
func Text(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < Day && d%time.Hour < time.Minute:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < Day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d%Day < time.Hour:
		return fmt.Sprintf("%dd", d/Day)
	}
	return fmt.Sprintf("%dd%02dh", d/Day, d%Day/time.Hour)
}
