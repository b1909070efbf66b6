package httpapi

import (
	"math"
	"testing"
	"time"
)

func TestSecondsAreWrittenToTheMicrosecond(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                "0",
		999 * time.Nanosecond:            "0",
		-999 * time.Nanosecond:           "0",
		time.Microsecond:                 "0.000001",
		-time.Microsecond:                "-0.000001",
		100 * time.Millisecond:           "0.1",
		10 * time.Second:                 "10",
		-1500 * time.Millisecond:         "-1.5",
		30*time.Second + 123456:          "30.000123",
		30*time.Second + 20*1000:         "30.00002",
		7919 * time.Millisecond:          "7.919", // Duration.Seconds returns 7.9190000000000005
		time.Duration(math.MaxInt64):     "9223372036.854775",
		time.Duration(math.MinInt64) + 1: "-9223372036.854775",
	} {
		got, err := seconds(d).MarshalJSON()
		if err != nil || string(got) != want {
			t.Errorf("%d ns is written as %s, %v; want %s", int64(d), got, err, want)
		}
	}
}

func BenchmarkSeconds(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = seconds(30*time.Second + 123456).MarshalJSON()
	}
}
