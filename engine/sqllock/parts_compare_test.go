package sqllock

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// differ compares all that is known of claims and sessions.
func (w *world) differ() string {
	if err := w.whole.Check(); err != nil {
		return "the whole: " + err.Error()
	}
	if err := w.rows.sound(); err != nil {
		return "the rows: " + err.Error()
	}
	a, b := w.whole.Snapshot(), w.snapshot()
	for _, diff := range []string{w.differSessions(a.Sessions, b.Sessions), w.differClaims(a.Claims, b.Claims),
		differText("freezes", a.Freezes, b.Freezes)} {
		if diff != "" {
			return diff
		}
	}
	return ""
}

// snapshot returns the rows as the snapshot of a table.
func (w *world) snapshot() (snap table.Snapshot) {
	t := w.rows.tables
	v := newView()
	for ref, row := range t.claims {
		c := row.Claim
		v.claims[ref] = &c
	}
	for id, s := range t.sessions {
		v.sessions[id] = &s
	}
	v.applyAcks()
	for _, id := range slices.Sorted(maps.Keys(t.sessions)) {
		if s := t.sessions[id]; !s.Closed {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(t.claims), compareRefs) {
		c := v.claims[ref].ClaimRecord
		s, open := t.sessions[ref.Session]
		remembered := open && !s.Closed && c.Forget > w.rows.now && !(c.Acked && ref.ID < s.LowestOpen)
		if c.State != lockkeeper.Ended || remembered && !w.forgot(ref) || c.UnackedUntil > w.rows.now {
			snap.Claims = append(snap.Claims, c)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.freezes)) {
		snap.Freezes = append(snap.Freezes, t.freezes[path])
	}
	return snap
}

func (w *world) differSessions(a, b []table.SessionRecord) string {
	one, two := slices.Clone(a), slices.Clone(b)
	for i := range min(len(one), len(two)) {
		if !w.epochs.same(one[i].Epoch, two[i].Epoch) {
			return differText("sessions", a, b)
		}
		one[i].Epoch, two[i].Epoch = 0, 0
	}
	return differText("sessions", one, two)
}

func (w *world) differClaims(a, b []table.ClaimRecord) string {
	one, two := slices.Clone(a), slices.Clone(b)
	// A claim that ended and was recalled since has no rows of the old end.
	one = slices.DeleteFunc(one, func(r table.ClaimRecord) bool {
		return r.State == lockkeeper.Ended && r.UnackedUntil <= w.rows.now && r.Forget <= w.rows.now
	})
	for i := range min(len(one), len(two)) {
		r, s := &one[i], &two[i]
		if r.Ref == s.Ref && (!w.fences.same(r.Fence, s.Fence) || !w.tickets.same(r.Ticket, s.Ticket)) {
			return fmt.Sprintf("of the whole fence %d, ticket %d, of the parts fence %d, ticket %d\nfences %v, tickets %v\n",
				r.Fence, r.Ticket, s.Fence, s.Ticket, w.fences.all, w.tickets.all) +
				differText("claims", a, b)
		}
		for _, r := range []*table.ClaimRecord{r, s} {
			r.Fence, r.Ticket, r.Change = 0, 0, 0
			if r.Reason == lockkeeper.Deadlock {
				r.Text, r.Acked = "", r.Acked && !w.short() // it may be found by the next look
			}
			if r.UnackedUntil <= w.rows.now {
				r.UnackedUntil = 0
			}
			if r.State == lockkeeper.Ended {
				r.Changed, r.Forget = 0, 0
			}
		}
	}
	return differText("claims", one, two)
}

// differText compares lists of records as texts.
func differText[T any](what string, a, b []T) string {
	if len(a) == len(b) && slices.EqualFunc(a, b, func(a, b T) bool { return reflect.DeepEqual(a, b) }) {
		return ""
	}
	one, two := texts(a), texts(b)
	if slices.Equal(one, two) {
		return ""
	}
	var diff strings.Builder
	fmt.Fprintf(&diff, "%s of the whole that the parts don't have:\n", what)
	for _, line := range one {
		if !slices.Contains(two, line) {
			fmt.Fprintln(&diff, line)
		}
	}
	fmt.Fprintf(&diff, "%s of the parts that the whole doesn't have:\n", what)
	for _, line := range two {
		if !slices.Contains(one, line) {
			fmt.Fprintln(&diff, line)
		}
	}
	return diff.String()
}

func texts[T any](all []T) (lines []string) {
	for _, one := range all {
		if c, is := any(one).(table.ClaimRecord); is {
			operator := table.OperatorRecord{}
			if c.Operator != nil {
				operator, c.Operator = *c.Operator, nil
			}
			lapse := table.LapseRecord{}
			if c.Lapse != nil {
				lapse, c.Lapse = *c.Lapse, nil
			}
			lines = append(lines, fmt.Sprintf("%+v, operator %+v, lapse %+v", c, operator, lapse))
			continue
		}
		lines = append(lines, fmt.Sprintf("%+v", one))
	}
	return lines
}
