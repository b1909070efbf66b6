package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var errDuration = errors.New("not a duration")

// parseDuration reads durations as Go writes them, and also d for a day of 24
// hours and w for a week: "90s", "1h30m", "2w3d". It refuses signs, a number
// without a unit (but 0), and what does not fit.
func parseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if text == "" {
		return 0, errDuration
	}
	var sum time.Duration
	for text != "" {
		value, rest, err := firstSpan(text)
		if err != nil || sum+value < sum {
			return 0, errDuration
		}
		sum, text = sum+value, rest
	}
	return sum, nil
}

// firstSpan reads the first number and its unit, and returns the rest.
func firstSpan(text string) (value time.Duration, rest string, err error) {
	digits := 0
	for digits < len(text) && (isDigit(text[digits]) || text[digits] == '.') {
		digits++
	}
	end := digits
	for end < len(text) && !isDigit(text[end]) && text[end] != '.' {
		end++
	}
	unit := time.Duration(0)
	switch text[digits:end] {
	case "d":
		unit = day
	case "w":
		unit = week
	default:
		if digits == 0 { // a sign, which time.ParseDuration would take
			return 0, "", errDuration
		}
		value, err = time.ParseDuration(text[:end])
		return value, text[end:], err
	}
	n, err := strconv.ParseFloat(text[:digits], 64)
	if err != nil || n*float64(unit) >= float64(1<<63-1) {
		return 0, "", errDuration
	}
	return time.Duration(n * float64(unit)), text[end:], nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

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
