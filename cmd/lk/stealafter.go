package main

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// stealBound is the value of --steal-after: a time, or thousandths of the holder's TTL.
type stealBound struct {
	after time.Duration
	part  int // 0: after counts
}

func (b stealBound) request() lockkeeper.Request {
	if b.part != 0 {
		return lockkeeper.WithStealAfterTTL(float64(b.part) / lockkeeper.MaxAfterTTL)
	}
	return lockkeeper.WithStealAfter(b.after)
}

// stealSpan is the flag --steal-after.
type stealSpan struct {
	to  *stealBound
	bad *problems
}

func (s stealSpan) String() string { return "" }

// Type stands for the value in the help.
func (s stealSpan) Type() string { return "D" }

// Set reads a duration, a part of the TTL such as 0.5ttl, or auto.
func (s stealSpan) Set(text string) error {
	part, isPart := duration.TTLPart(text)
	switch {
	case text == "auto":
		*s.to = stealBound{after: lockkeeper.AfterMeasured}
		return nil
	case !isPart:
		*s.to = stealBound{}
		return span{&s.to.after, s.bad, "--steal-after", 0}.Set(text)
	case part < 1 || part > lockkeeper.MaxAfterTTL:
		s.bad.addf("--steal-after %s is out of range: 0.001ttl to 1ttl", text)
	default:
		*s.to = stealBound{part: part}
	}
	return nil
}
