package deadlines

import "time"

// An End is the latest moment at which a hold ends before its session does, by the boot clock of its
// client, and why. R are the reasons; the zero reason says that no end is known.
type End[R comparable] struct {
	At     time.Duration
	Why    R
	EndsAt time.Duration // the engine's end, one margin later, as the engine stated it
}

// After returns the end that an engine states in an answer to a request that left at sent: left of
// the answer later.
func After[R comparable](sent, left time.Duration, why R, endsAt time.Duration) End[R] {
	return End[R]{sent + left - Margin(left), why, endsAt}
}

// Known reports whether e is an end.
func (e End[R]) Known() bool {
	var none R
	return e.Why != none
}

// Passed reports whether e is an end that has passed.
func (e End[R]) Passed(now time.Duration) bool { return e.Known() && now >= e.At }

// Sooner returns the earlier of two ends.
func (e End[R]) Sooner(other End[R]) End[R] {
	if !e.Known() || other.Known() && other.At < e.At {
		return other
	}
	return e
}

// Ends are the ends of one hold, as its client knows them. The zero value has none.
//
// The engine relies on the end in its latest answer, even if a hint stated another one since. A hint
// may be old, so it can only shorten the hold.
type Ends[R comparable] struct {
	answered End[R]
	change   uint64 // of that answer, as the engine counts the changes of a claim; 0: no answer yet
	hinted   End[R]
	longest  End[R]
}

// First returns the earliest end.
func (e *Ends[R]) First() End[R] { return e.Stated().Sooner(e.longest) }

// Stated returns the earliest end that the engine stated.
func (e *Ends[R]) Stated() End[R] { return e.answered.Sooner(e.hinted) }

// Answered reports whether an answer has stated an end, or that there is none.
func (e *Ends[R]) Answered() bool { return e.change > 0 }

// Answer applies the end in an answer, or that there is none, if no later answer came before. current
// says that no hint has stated a later change. Answer reports whether the end is a new one.
func (e *Ends[R]) Answer(change uint64, end End[R], current bool) (stated bool) {
	if change < e.change {
		return false
	}
	stated = end.Known() && change > e.change
	e.answered, e.change = end, change
	if current {
		e.hinted = End[R]{}
	}
	return stated
}

// Hint applies the end in a hint, or that there is none. It reports whether an answer is needed: the
// hint states an end, or takes one back.
func (e *Ends[R]) Hint(end End[R]) (renew bool) {
	e.hinted = end
	return end.Known() || e.answered.Known()
}

// Bound applies what an answer says of a longest hold: after left, the hold ends for the reason why.
//
// The end is never after the engine's. A later answer has less time left and so a smaller margin,
// which brings the end closer to the engine's: the latest counts.
func (e *Ends[R]) Bound(sent, left time.Duration, why R) {
	if end := After(sent, left, why, 0); !e.longest.Known() || end.At > e.longest.At {
		e.longest = end
	}
}

// Bounded reports whether Bound was called.
func (e *Ends[R]) Bounded() bool { return e.longest.Known() }

// Recount forgets the change of the latest answer: the engine has restarted and counts from the start.
func (e *Ends[R]) Recount() { e.change = 0 }
