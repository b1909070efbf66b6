// Package duration reads durations as people write them. All that takes one from a
// person reads it here: flags, the configuration of a server, HTTP requests.
package duration

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// Day has 24 hours.
	Day  = 24 * time.Hour
	week = 7 * Day
)

// Err is the error of Parse for text that is no duration. It has no details: the caller knows what
// the text is for, and so words the message.
var Err = errors.New("not a duration")

// Parse reads durations as Go writes them, and also d for a day of 24
// hours and w for a week: "90s", "1h30m", "2w3d". It refuses signs, a number
// without a unit (but 0), and what does not fit.
func Parse(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if text == "" {
		return 0, Err
	}
	var sum time.Duration
	for text != "" {
		value, rest, err := firstSpan(text)
		if err != nil || sum+value < sum {
			return 0, Err
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
		unit = Day
	case "w":
		unit = week
	default:
		if digits == 0 { // a sign, which time.ParseDuration would take
			return 0, "", Err
		}
		value, err = time.ParseDuration(text[:end])
		return value, text[end:], err
	}
	n, err := strconv.ParseFloat(text[:digits], 64)
	if err != nil || n*float64(unit) >= float64(1<<63-1) {
		return 0, "", Err
	}
	return time.Duration(n * float64(unit)), text[end:], nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// A Span is a duration that stands in a file as Parse reads it.
type Span time.Duration

// MarshalText writes what UnmarshalText reads.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads what Parse reads, and says what a duration looks like if it is
// none.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration, such as 90s, 5m or 2w3d", text)
	}
	*s = Span(d)
	return nil
}
