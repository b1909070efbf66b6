package enginetest

import (
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func matches(err, target error) bool { return errors.Is(err, target) }

// badWants are invalid wants, each for one reason.
var badWants = map[string]func(*lockkeeper.Want){
	"id 0":             func(w *lockkeeper.Want) { w.ID = 0 },
	"no targets":       func(w *lockkeeper.Want) { w.Targets = nil },
	"too many targets": func(w *lockkeeper.Want) { w.Targets = manyTargets(lockkeeper.MaxTargets + 1) },
	"a path twice": func(w *lockkeeper.Want) {
		w.Targets = []lockkeeper.Target{exclusive("x"), shared("x")}
	},
	"no mode":                   func(w *lockkeeper.Want) { w.Targets[0].Mode = 0 },
	"an unknown mode":           func(w *lockkeeper.Want) { w.Targets[0].Mode = 9 },
	"units without permits":     func(w *lockkeeper.Want) { w.Targets[0].Units = 1 },
	"a limit without permits":   func(w *lockkeeper.Want) { w.Targets[0].Limit = 1 },
	"no units":                  func(w *lockkeeper.Want) { w.Targets[0] = permits("x", 0, 1) },
	"negative units":            func(w *lockkeeper.Want) { w.Targets[0] = permits("x", -1, 1) },
	"no limit":                  func(w *lockkeeper.Want) { w.Targets[0] = permits("x", 1, 0) },
	"more units than the limit": func(w *lockkeeper.Want) { w.Targets[0] = permits("x", 3, 2) },
	"a huge limit":              func(w *lockkeeper.Want) { w.Targets[0] = permits("x", 1, lockkeeper.MaxPermits+1) },
	"a huge priority":           func(w *lockkeeper.Want) { w.Priority = lockkeeper.MaxPriority + 1 },
	"a tiny priority":           func(w *lockkeeper.Want) { w.Priority = -lockkeeper.MaxPriority - 1 },
	"a negative wait":           func(w *lockkeeper.Want) { w.Wait = -1 },
	"a huge wait":               func(w *lockkeeper.Want) { w.Wait = lockkeeper.MaxDuration + 1 },
	"unknown writer policy":     func(w *lockkeeper.Want) { w.WriterPolicy = 7 },
	"soft policy, shared": func(w *lockkeeper.Want) {
		w.Targets[0] = shared("x")
		w.WriterPolicy = lockkeeper.Soft
	},
	"soft policy and stealing": func(w *lockkeeper.Want) {
		w.WriterPolicy = lockkeeper.Soft
		w.Steal = lockkeeper.Ask
	},
	"a quiet period, hard":             func(w *lockkeeper.Want) { w.Quiet = time.Second },
	"a negative quiet period":          func(w *lockkeeper.Want) { w.WriterPolicy = lockkeeper.Soft; w.Quiet = -1 },
	"an unknown way to steal":          func(w *lockkeeper.Want) { w.Steal = 7 },
	"a bound without taking":           func(w *lockkeeper.Want) { w.Steal = lockkeeper.Ask; w.After = time.Second },
	"a negative bound":                 func(w *lockkeeper.Want) { w.Steal = lockkeeper.Take; w.After = -1 },
	"a part of the TTL without taking": func(w *lockkeeper.Want) { w.Steal = lockkeeper.Ask; w.AfterTTL = 500 },
	"a negative part of the TTL":       func(w *lockkeeper.Want) { w.Steal = lockkeeper.Take; w.AfterTTL = -1 },
	"more than the TTL": func(w *lockkeeper.Want) {
		w.Steal, w.AfterTTL = lockkeeper.Take, lockkeeper.MaxAfterTTL+1
	},
	"a bound and a part of the TTL": func(w *lockkeeper.Want) {
		w.Steal, w.After, w.AfterTTL = lockkeeper.Take, time.Second, 500
	},
	"a negative longest hold":       func(w *lockkeeper.Want) { w.MaxHold = -1 },
	"a grace of nothing":            func(w *lockkeeper.Want) { w.Grace = time.Second },
	"a negative grace":              func(w *lockkeeper.Want) { w.MaxHold, w.Grace = time.Second, -1 },
	"an endless longest hold":       func(w *lockkeeper.Want) { w.MaxHold = forever },
	"a negative announcement":       func(w *lockkeeper.Want) { w.Expected = -1 },
	"a negative freeze":             func(w *lockkeeper.Want) { w.Freeze = -1 },
	"a lock of everything":          func(w *lockkeeper.Want) { w.Targets[0] = exclusive(string(lockkeeper.Root)) },
	"a shared freeze":               func(w *lockkeeper.Want) { w.Targets[0] = shared("x"); w.Freeze = time.Second },
	"a long name":                   func(w *lockkeeper.Want) { w.As = strings.Repeat("x", lockkeeper.MaxAsBytes+1) },
	"a long note":                   func(w *lockkeeper.Want) { w.Note = strings.Repeat("x", lockkeeper.MaxNoteBytes+1) },
	"a long link":                   func(w *lockkeeper.Want) { w.Link = strings.Repeat("x", lockkeeper.MaxNoteBytes+1) },
	"control characters":            func(w *lockkeeper.Want) { w.Note = "a\x1b[2J" },
	"text that is not UTF-8":        func(w *lockkeeper.Want) { w.As = "\xff" },
	"an empty path":                 func(w *lockkeeper.Want) { w.Targets[0].Path = "" },
	"a path that is not normalized": func(w *lockkeeper.Want) { w.Targets[0].Path = "a//b" },
}

func manyTargets(n int) []lockkeeper.Target {
	var targets []lockkeeper.Target
	for i := range n {
		targets = append(targets, exclusive("t"+strings.Repeat("x", i)))
	}
	return targets
}

// badSessions are invalid sessions, each for one reason.
var badSessions = map[string]func(*lockkeeper.Session){
	"no id":              func(s *lockkeeper.Session) { s.ID = "" },
	"a long id":          func(s *lockkeeper.Session) { s.ID = strings.Repeat("x", lockkeeper.MaxSessionID+1) },
	"control characters": func(s *lockkeeper.Session) { s.ID = "a\nb" },
	"hidden characters":  func(s *lockkeeper.Session) { s.As = "a\u202eb" },
	"a negative TTL":     func(s *lockkeeper.Session) { s.TTL = -1 },
	"a tiny TTL":         func(s *lockkeeper.Session) { s.TTL = lockkeeper.MinTTL - 1 },
	"a huge TTL":         func(s *lockkeeper.Session) { s.TTL = lockkeeper.MaxTTL + 1 },
	"a long name":        func(s *lockkeeper.Session) { s.As = strings.Repeat("x", lockkeeper.MaxAsBytes+1) },
}
