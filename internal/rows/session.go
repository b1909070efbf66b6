package rows

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// SessionColumns are the columns of a session, in the order of [SessionValues]
// and [ScanSession].
const SessionColumns = "id, state, who, note, link, ttl_ns, deadline_ns, promise_ns, epoch, last_lease, acked, " +
	"lowest_open"

// SessionValues returns the columns of an open session: each is a string, an int64, or nil for
// NULL.
func SessionValues(s *table.SessionRecord) []any {
	state := "open"
	if !s.Resumed {
		state = "resuming"
	}
	return []any{s.ID, state, s.Label.As, s.Label.Note, s.Label.Link, int64(s.TTL), End(s.Deadline),
		End(s.Promise), int64(s.Epoch), int64(s.Leases), int64(s.Acked), int64(s.LowestOpen)}
}

// ScanSession reads the columns of a session, and all further columns into more.
func ScanSession(s *table.SessionRecord, scan func(...any) error, more ...any) error {
	var state string
	into := []any{&s.ID, &state, &s.Label.As, &s.Label.Note, &s.Label.Link, &s.TTL, Endless{&s.Deadline},
		Endless{&s.Promise}, Signed{&s.Epoch}, Signed{&s.Leases}, Signed{&s.Acked}, Signed{&s.LowestOpen}}
	if err := scan(append(into, more...)...); err != nil {
		return err
	}
	s.Resumed, s.Closed = state == "open", state == "closed"
	return nil
}

// FreezeColumns are the columns of a freeze in force, in the order of [FreezeValues] and
// [ScanFreeze].
const FreezeColumns = "path, session, claim, who, note, link, since_ns, until_ns"

// FreezeValues returns the columns of f: each is a string or an int64.
func FreezeValues(f *table.FreezeRecord) []any {
	return []any{string(f.Path), f.By.Session, int64(f.By.ID), f.Label.As, f.Label.Note, f.Label.Link, int64(f.Since),
		int64(f.Until)}
}

// ScanFreeze reads the columns of f, and all further columns into more.
func ScanFreeze(f *table.FreezeRecord, scan func(...any) error, more ...any) error {
	into := []any{&f.Path, &f.By.Session, Signed{&f.By.ID}, &f.Label.As, &f.Label.Note, &f.Label.Link, &f.Since, &f.Until}
	return scan(append(into, more...)...)
}

// ThawedStatus returns the status of an ended freeze.
func ThawedStatus(by lockkeeper.Ref, path lockkeeper.Path, reason lockkeeper.Reason) lockkeeper.Status {
	target := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
	return lockkeeper.Status{
		Ref:    by,
		State:  lockkeeper.Ended,
		Reason: reason,
		Grants: []lockkeeper.Grant{{Target: target}},
	}
}

// HoldTimeColumns are the columns of a hold time, in the order of the fields of
// [table.HoldTimeRecord].
const HoldTimeColumns = "path, estimate_ns, at_ns"

// holdTimeMaxAge is the age at which a row is written again even if the estimate has hardly
// changed.
const holdTimeMaxAge = 10 * time.Minute

// holdTimeTolerance is how far a row may be from the estimate, however short the hold time is.
const holdTimeTolerance = 10 * time.Millisecond

// HoldTimeMoved reports whether p must be written over the row old. Every release changes the
// estimate, and writing it each time would cost a tenth of the release. So a row is written once a
// second at most, and only if it is wrong by more than an eighth and more than holdTimeTolerance.
func HoldTimeMoved(old, p *table.HoldTimeRecord) bool {
	age := p.At - old.At
	return p.Forgotten || age > holdTimeMaxAge || age >= time.Second &&
		(p.Estimate-old.Estimate).Abs() > max(old.Estimate/8, holdTimeTolerance)
}
