package lockkeeper

import (
	"context"
	"math"
	"slices"
	"time"
)

// A Request is one part of a claim: a target, such as [Shared] of a path, or a condition, such as
// [WithWait]. Of two conditions of one kind the later counts. A call refuses an invalid request
// with [ErrInvalid], before it asks the engine.
type Request func(*demand)

// demand is a Want under construction: each Request sets a part of it.
type demand struct {
	want        Want
	inline      [1]Target     // room for the usual single target, so that it costs no allocation
	waits       bool          // WithWait was given
	prioritizes bool          // WithPriority was given
	amends      bool          // it changes a claim: targets replace those of the same path
	byContext   bool          // the wait is bounded by the context's deadline
	due         time.Time     // the end of a bounded wait; zero without a bound
	slack       time.Duration // the engine may end the wait up to this much later than due
	wrong       checker
}

// Exclusive asks for the path, with all paths below it, alone.
func Exclusive(path string) Request {
	return func(d *demand) { d.target(path, Target{Mode: ModeExclusive}) }
}

// Shared asks for the path, with all paths below it, together with others that share it.
func Shared(path string) Request {
	return func(d *demand) { d.target(path, Target{Mode: ModeShared}) }
}

// Permits asks for units of the path. This caller allows at most limit units to be in use at once;
// others may have another limit (R7).
func Permits(path string, units, limit int) Request {
	return func(d *demand) { d.target(path, Target{Mode: ModePermits, Units: units, Limit: limit}) }
}

// WithWait bounds the wait: 0 tries and never waits, [Forever] is the default. It never bounds the
// hold. A wait that can't succeed within the bound fails at once.
//
// The bound counts from the call, as a context's deadline does. Until then the client tries to
// reach an engine that does not answer, and returns ErrUnavailable if it never reaches it. Without
// a bound the client tries for the session's TTL.
func WithWait(d time.Duration) Request {
	return func(r *demand) { r.want.Wait, r.waits = d, true }
}

// WithPriority puts the claim ahead of all waiting claims of lower priority: -[MaxPriority] to
// [MaxPriority], 0 is the default.
func WithPriority(p int) Request {
	return func(d *demand) { d.want.Priority, d.prioritizes = p, true }
}

// WithSoft makes an exclusive claim wait without blocking anybody: it is granted only when nothing
// in its way was held for the quiet period (R9).
func WithSoft(quiet time.Duration) Request {
	return func(d *demand) { d.want.WriterPolicy, d.want.Quiet = Soft, quiet }
}

// WithSteal asks holders of lower priority to yield, and waits until they do (R10).
func WithSteal() Request {
	return func(d *demand) { d.want.Steal, d.want.After, d.want.AfterTTL = Ask, 0, 0 }
}

// WithStealAfter asks holders of lower priority to yield. After that time, or after the holder's TTL
// if that is sooner, the engine ends the holds of those that have not yielded (R10). Some engines
// also accept [AfterMeasured].
func WithStealAfter(after time.Duration) Request {
	return func(d *demand) { d.want.Steal, d.want.After, d.want.AfterTTL = Take, after, 0 }
}

// WithStealAfterTTL is WithStealAfter with a part of each holder's TTL: a factor from 0.001 to 1,
// rounded to thousandths. With 1 a holder has stopped by its own clock before the engine grants the
// next claim. A lower factor is faster, and a holder that does not answer meanwhile may still be
// working: then the grant is marked unconfirmed.
func WithStealAfterTTL(factor float64) Request {
	return func(d *demand) {
		thousandths := math.Round(factor * MaxAfterTTL)
		if !(thousandths >= 1 && thousandths <= MaxAfterTTL) {
			d.wrong.addf("steal after %g of the TTL is out of range: 0.001 to 1", factor)
			return
		}
		d.want.Steal, d.want.After, d.want.AfterTTL = Take, 0, int(thousandths)
	}
}

// WithMaxHold bounds the hold: after d the engine asks its holder to yield, and after the grace the
// hold ends as [Overdue].
func WithMaxHold(d, grace time.Duration) Request {
	return func(r *demand) { r.want.MaxHold, r.want.Grace = d, grace }
}

// WithExpectedDuration announces for how long the lock will be held, so that claims with a shorter
// wait fail at once instead of waiting for nothing (R8). It does not end the hold.
func WithExpectedDuration(d time.Duration) Request {
	return func(r *demand) { r.want.Expected = d }
}

// WithAs names the caller: at most [MaxAsBytes] bytes.
func WithAs(s string) Request {
	return func(d *demand) { d.want.As = s }
}

// WithNote says what the lock is for: at most [MaxNoteBytes] bytes.
func WithNote(s string) Request {
	return func(d *demand) { d.want.Note = s }
}

// WithLink says where to look, such as the URL of a CI run: at most [MaxNoteBytes] bytes.
func WithLink(s string) Request {
	return func(d *demand) { d.want.Link = s }
}

// WithInside says that the claim is made inside the hold of the claim ref, which continues only
// when this claim has ended; a claim made in [Hold.Context] says so without it. A program that was
// started under a lock of its parent names the parent's claim, so that waiting for its own parent
// is detected as a deadlock (R15). In a context that is inside ref already it has no effect.
func WithInside(ref Ref) Request {
	return func(d *demand) { d.want.Inside = ref }
}

// target adds t at the path; an amendment replaces the target of that path.
func (d *demand) target(path string, t Target) {
	p, err := ParsePath(path)
	if err != nil {
		d.wrong.addf("%s", err.(*Error).Detail)
		return
	}
	t.Path = p
	if !d.amends {
		if d.want.Targets == nil {
			d.want.Targets = d.inline[:0]
		}
		d.want.Targets = append(d.want.Targets, t)
		return
	}
	i := slices.IndexFunc(d.want.Targets, func(old Target) bool { return old.Path == p })
	if i < 0 {
		d.wrong.addf("%s is none of the claim's paths: an amendment can't add one", p)
		return
	}
	d.want.Targets[i] = t
}

// add applies the requests.
func (d *demand) add(requests []Request) {
	for _, r := range requests {
		if r != nil {
			r(d)
		}
	}
}

// bound shortens the wait to what is left of ctx, so that the engine can refuse at once a wait that
// can't succeed (R8).
func (d *demand) bound(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok || d.want.Wait == 0 {
		return
	}
	if left := time.Until(deadline); left < d.want.Wait && left <= MaxDuration {
		d.want.Wait, d.byContext = max(left, time.Nanosecond), true
	}
}

// begin starts the bound of the wait at now.
func (d *demand) begin(now time.Time) {
	if d.want.Wait > 0 && d.want.Wait < MaxDuration {
		d.due, d.slack = now.Add(d.want.Wait), Margin(d.want.Wait)
	}
}

// check returns everything that is wrong with d by itself.
func (d *demand) check() error {
	if err := d.wrong.err(); err != nil {
		return err // the targets are not complete, so the rest can't be judged
	}
	return d.want.Check()
}

// fillLabel fills the empty fields of the claim's label from the session's label.
func (d *demand) fillLabel(l Label) {
	if d.want.As == "" {
		d.want.As = l.As
	}
	if d.want.Note == "" {
		d.want.Note = l.Note
	}
	if d.want.Link == "" {
		d.want.Link = l.Link
	}
}
