// Package rows converts records of package table to columns that people can read, and back. The
// engines that keep claims in a database share it; each has its own SQL.
package rows

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// ClaimColumns are the columns of a claim, in the order of [Claim.Values] and [Claim.Scan]. Their
// names are those of the fields of [table.ClaimRecord] and of [lockkeeper.Want]. Columns that end
// in _ns are nanoseconds; NULL means [lockkeeper.Forever].
const ClaimColumns = "session, id, state, targets, who, note, link, priority, ticket, fence, reason, arrived_ns, " +
	"granted_ns, " +
	"wait_ns, bound_ns, notified_ns, ended_ns, forget_ns, unacked_ns, change_no, changed_ns, more"

// Claim is a claim. If its wait ended without a grant, it also has the blockers, the position and
// the estimate of the wait at that time.
type Claim struct {
	table.ClaimRecord
	Blockers []lockkeeper.Blocker
	Position int
	ETA      time.Duration
}

// details are rare attributes of a claim: the column more.
type details struct {
	Revision uint64         `json:"revision,omitempty"`
	Inside   lockkeeper.Ref `json:"inside,omitzero"`
	// Wants are the targets that a conversion asked for. They stay after the conversion was undone,
	// so that the table recognises a repetition (R16).
	Wants        []lockkeeper.Target     `json:"wants,omitempty"`
	WriterPolicy lockkeeper.WriterPolicy `json:"writer_policy,omitempty"`
	Quiet        time.Duration           `json:"quiet_ns,omitempty"`
	Steal        lockkeeper.Steal        `json:"steal,omitempty"`
	After        time.Duration           `json:"after_ns,omitempty"`
	AfterTTL     int                     `json:"after_ttl,omitempty"`
	MaxHold      time.Duration           `json:"max_hold_ns,omitempty"`
	Grace        time.Duration           `json:"grace_ns,omitempty"`
	Expected     time.Duration           `json:"expected_ns,omitempty"`
	QuietSince   time.Duration           `json:"quiet_since_ns,omitempty"` // 0: since the arrival
	NotifiedIn   uint64                  `json:"notified_in,omitempty"`    // the lease that stated the end
	// UnackedEnd is the latest end that the holder may count on, if it differs from the stated one.
	UnackedEnd  time.Duration         `json:"unacked_end_ns,omitempty"`
	Unconfirmed bool                  `json:"unconfirmed,omitempty"`
	Overdue     bool                  `json:"overdue,omitempty"`
	Asks        []table.AskRecord     `json:"asks,omitempty"`
	Operator    *table.OperatorRecord `json:"operator,omitempty"`
	Lapse       *table.LapseRecord    `json:"lapse,omitempty"`
	Text        string                `json:"text,omitempty"`
	Thawed      bool                  `json:"thawed,omitempty"` // the record is an ended freeze
	// Known says that the session has acknowledged the end. It is not set if the reason shows that
	// the session itself ended the claim: see bySession.
	Known    bool          `json:"known,omitempty"`
	Blockers []blocker     `json:"blockers,omitempty"`
	Position int           `json:"position,omitempty"`
	ETA      time.Duration `json:"eta_ns,omitempty"`
}

// blocker is a Blocker without its methods, so that JSON has its durations in nanoseconds, as all
// others in rows.
type blocker lockkeeper.Blocker

func (d *details) isZero() bool {
	return d.Revision == 0 && d.Inside == (lockkeeper.Ref{}) && len(d.Wants) == 0 && d.WriterPolicy == 0 && d.Quiet == 0 &&
		d.Steal == 0 && d.After == 0 && d.AfterTTL == 0 && d.MaxHold == 0 && d.Grace == 0 && d.Expected == 0 &&
		d.QuietSince == 0 && d.NotifiedIn == 0 && d.UnackedEnd == 0 && !d.Unconfirmed && !d.Overdue &&
		len(d.Asks) == 0 && d.Operator == nil && d.Lapse == nil && d.Text == "" && !d.Thawed && !d.Known &&
		len(d.Blockers) == 0 && d.Position == 0 && d.ETA == 0
}

// detailsOf returns the rare attributes of c.
func (c *Claim) detailsOf() details {
	d := details{
		Revision:     c.Want.Revision,
		Inside:       c.Want.Inside,
		WriterPolicy: c.Want.WriterPolicy,
		Quiet:        c.Want.Quiet,
		Steal:        c.Want.Steal,
		After:        c.Want.After,
		AfterTTL:     c.Want.AfterTTL,
		MaxHold:      c.Want.MaxHold,
		Grace:        c.Want.Grace,
		Expected:     c.Want.Expected,
		Unconfirmed:  c.Unconfirmed,
		NotifiedIn:   c.StatedIn, UnackedEnd: c.UnackedEnd, Overdue: c.Overdue, Asks: c.Asks, Operator: c.Operator,
		Lapse: c.Lapse, Text: c.Text, Thawed: c.Thawed,
		Known: c.Acked && !bySession(&c.ClaimRecord), Position: c.Position, ETA: c.ETA,
	}
	for _, b := range c.Blockers {
		d.Blockers = append(d.Blockers, blocker(b))
	}
	if c.ClaimRecord.State != lockkeeper.Ended && !slices.Equal(c.Want.Targets, held(&c.ClaimRecord)) {
		d.Wants = c.Want.Targets
	}
	if c.ClaimRecord.State != lockkeeper.Ended && c.Quiet != c.Arrived {
		d.QuietSince = c.Quiet
	}
	return d
}

// State returns the column state: waiting, held, converting or ended.
func (c *Claim) State() string {
	if c.Converting {
		return "converting"
	}
	return c.ClaimRecord.State.String()
}

// Values returns the columns of c: each is a string, an int64, or nil for NULL.
func (c *Claim) Values() ([]any, error) {
	targets, err := json.Marshal(c.Grants)
	if err != nil {
		return nil, err
	}
	var more []byte
	if d := c.detailsOf(); !d.isZero() {
		if more, err = json.Marshal(d); err != nil {
			return nil, err
		}
	}
	reason := ""
	if c.Reason != lockkeeper.NoReason {
		reason = c.Reason.String()
	}
	return []any{c.Ref.Session, int64(c.Ref.ID), c.State(), string(targets), c.Want.As, c.Want.Note, c.Want.Link,
		int64(c.Want.Priority), int64(c.Ticket), int64(c.Fence), reason, int64(c.Arrived), int64(c.Granted), End(c.Want.Wait),
		End(c.Bound), End(c.StatedEnd), int64(c.Ended), int64(c.Forget), int64(c.UnackedUntil), int64(c.Change),
		int64(c.Changed),
		string(more)}, nil
}

// Scan reads the columns of c, and all further columns into more.
func (c *Claim) Scan(scan func(...any) error, more ...any) error {
	var state, reason string
	var targets, rare []byte
	into := append(make([]any, 0, 22+len(more)), &c.Ref.Session, Signed{&c.Ref.ID}, &state, &targets, &c.Want.As,
		&c.Want.Note, &c.Want.Link,
		&c.Want.Priority, Signed{&c.Ticket}, Signed{&c.Fence}, &reason, &c.Arrived, &c.Granted, Endless{&c.Want.Wait},
		Endless{&c.Bound}, Endless{&c.StatedEnd}, &c.Ended, &c.Forget, &c.UnackedUntil, Signed{&c.Change}, &c.Changed, &rare)
	if err := scan(append(into, more...)...); err != nil {
		return err
	}
	return c.read(state, reason, targets, rare)
}

// read decodes the columns that are not numbers.
func (c *Claim) read(state, reason string, targets, rare []byte) error {
	wrong := func(column string, err error) error { return fmt.Errorf("claim %s, column %s: %w", c.Ref, column, err) }
	c.Want.ID = c.Ref.ID
	c.Converting = state == "converting"
	if c.Converting {
		state = "held"
	}
	if err := c.ClaimRecord.State.UnmarshalText([]byte(state)); err != nil {
		return wrong("state", err)
	}
	if reason != "" {
		if err := c.Reason.UnmarshalText([]byte(reason)); err != nil {
			return wrong("reason", err)
		}
	}
	if err := json.Unmarshal(targets, &c.Grants); err != nil {
		return wrong("targets", err)
	}
	var d details
	if len(rare) > 0 {
		if err := json.Unmarshal(rare, &d); err != nil {
			return wrong("more", err)
		}
	}
	c.fill(&d)
	return nil
}

// fill is the reverse of detailsOf.
func (c *Claim) fill(d *details) {
	w := &c.Want
	w.Revision, w.Inside, w.WriterPolicy, w.Quiet, w.Steal = d.Revision, d.Inside, d.WriterPolicy, d.Quiet, d.Steal
	w.After, w.AfterTTL, w.MaxHold, w.Grace, w.Expected = d.After, d.AfterTTL, d.MaxHold, d.Grace, d.Expected
	c.Unconfirmed, c.Overdue, c.Asks = d.Unconfirmed, d.Overdue, d.Asks
	c.Operator, c.Lapse, c.Text = d.Operator, d.Lapse, d.Text
	c.Position, c.ETA = d.Position, d.ETA
	for _, b := range d.Blockers {
		c.Blockers = append(c.Blockers, lockkeeper.Blocker(b))
	}
	if c.ClaimRecord.State == lockkeeper.Ended {
		c.Thawed = d.Thawed
		c.Acked = d.Known || bySession(&c.ClaimRecord)
		return
	}
	if c.Quiet = d.QuietSince; c.Quiet == 0 {
		c.Quiet = c.Arrived
	}
	c.StatedIn, c.UnackedEnd = d.NotifiedIn, d.UnackedEnd
	if w.Targets = d.Wants; len(w.Targets) == 0 {
		w.Targets = held(&c.ClaimRecord)
	}
}

// EndedStatus returns the status of an ended claim.
func (c *Claim) EndedStatus(now time.Duration) lockkeeper.Status {
	return lockkeeper.Status{
		Ref:      c.Ref,
		Inside:   c.Want.Inside,
		Change:   c.Change,
		Revision: c.Want.Revision,
		State:    lockkeeper.Ended,
		Reason:   c.Reason,
		Text:     c.Text,
		Grants:   c.Grants,
		Priority: c.Want.Priority,
		Label:    c.Want.Label,
		Fence:    c.Fence,
		Age:      max(0, now-c.Ended),
		Blockers: c.Blockers, Position: c.Position, ETA: c.ETA,
	}
}

// bySession reports whether the reason of c shows that its own session ended it.
func bySession(c *table.ClaimRecord) bool {
	return !c.Thawed && (c.Reason == lockkeeper.Released || c.Reason == lockkeeper.Yielded ||
		c.Reason == lockkeeper.Cancelled)
}

// held returns the targets that c holds. They differ from the targets that it wants only if it was
// converted.
func held(c *table.ClaimRecord) []lockkeeper.Target {
	targets := make([]lockkeeper.Target, len(c.Grants))
	for i, g := range c.Grants {
		targets[i] = g.Target
	}
	return targets
}
