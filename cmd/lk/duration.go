package main

import (
	"fmt"
	"math"
	"time"
)

const day = 24 * time.Hour

// passed writes how long something has gone on, rounded down.
func passed(d time.Duration) string {
	if d < time.Second {
		return "<1s"
	}
	return human(d)
}

// left writes how long something still goes on, rounded up: what was just
// granted for 30s is not said to end in 29s, and what is not over is never "0s".
func left(d time.Duration) string {
	unit := time.Second
	switch {
	case d > day:
		unit = time.Hour
	case d > 10*time.Minute:
		unit = time.Minute
	}
	if rest := d % unit; rest > 0 && d < math.MaxInt64-unit {
		d += unit - rest
	}
	return human(d)
}

// exact writes a duration as the user gave it: "2.5s".
func exact(d time.Duration) string {
	if d > time.Second && d%time.Second != 0 {
		return d.String()
	}
	return human(d)
}

// human writes a duration as people say it: two units at most, rounded down.
func human(d time.Duration) string {
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
	case d < day && d%time.Hour < time.Minute:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d%day < time.Hour:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}
