package story

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Print writes statuses as an aligned table, one a line: state, claim, targets and details.
func Print(statuses []lockkeeper.Status) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range statuses {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", stateOf(s), s.Ref, targetsOf(s), strings.Join(detailsOf(s), ", "))
	}
	w.Flush()
	return trimLines(b.String())
}

// PrintEvents writes events one a line: time, kind, claim and reason.
func PrintEvents(events []table.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "  %s: %s %s", Duration(e.At), e.Kind, e.Ref)
		if e.Path != "" {
			fmt.Fprintf(&b, " on %s", e.Path)
		}
		if e.Fence != 0 {
			fmt.Fprintf(&b, ", fence %d", e.Fence)
		}
		if e.Reason != lockkeeper.NoReason {
			fmt.Fprintf(&b, ", %s", e.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// answer describes the answer to c in a few words.
func answer(c table.Command, reply table.Reply, err error) string {
	if err != nil {
		var e *lockkeeper.Error
		if errors.As(err, &e) && e.Epoch != 0 {
			return fmt.Sprintf("error, %s: it has epoch %d", sentinel(err), e.Epoch)
		}
		return "error, " + sentinel(err)
	}
	switch c.Op {
	case table.Attach, table.Renew:
		lease := fmt.Sprintf("epoch %d for %s", reply.Lease.Key.Epoch, Duration(reply.Lease.TTL))
		if reply.Lease.TTL == 0 {
			lease = fmt.Sprintf("epoch %d", reply.Lease.Key.Epoch)
		}
		return lease
	case table.Claim:
		if reply.Status.State == lockkeeper.Ended {
			return "ended, " + reply.Status.Reason.String()
		}
		return stateOf(reply.Status)
	}
	return "ok"
}

// sentinel names the error that a program acts on; the words for people may change.
func sentinel(err error) string {
	for _, known := range []error{
		lockkeeper.ErrInvalid, lockkeeper.ErrUnsupported, lockkeeper.ErrDenied, lockkeeper.ErrDeadlock,
		lockkeeper.ErrNotAcquired, lockkeeper.ErrLost, lockkeeper.ErrNotHeld, lockkeeper.ErrSession,
		lockkeeper.ErrUnavailable,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

func stateOf(s lockkeeper.Status) string {
	if s.Converting {
		return "held, converting"
	}
	return s.State.String()
}

func targetsOf(s lockkeeper.Status) string {
	var all []string
	for _, g := range s.Grants {
		t := g.Mode.String() + " " + quote(string(g.Path))
		switch {
		case s.State == lockkeeper.Freezing:
			t = quote(string(g.Path))
		case g.Mode == lockkeeper.ModePermits:
			t = fmt.Sprintf("%s %d/%d", t, g.Units, g.Limit)
		}
		all = append(all, t)
	}
	return strings.Join(all, ", ")
}

func detailsOf(s lockkeeper.Status) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if s.Inside != (lockkeeper.Ref{}) {
		add("inside %s", s.Inside)
	}
	if s.Priority != 0 {
		add("priority %d", s.Priority)
	}
	if s.State != lockkeeper.Waiting && s.Fence != 0 {
		add("fence %d", s.Fence)
	}
	if s.Lapsed {
		add("lapsed")
	}
	for _, g := range s.Grants {
		if g.InUse != 0 {
			add("%d in use", g.InUse)
		}
		if g.Slot != 0 {
			add("slot %d", g.Slot)
		}
	}
	if s.Position != 0 {
		add("place %d", s.Position)
	}
	if s.ETA != 0 {
		add("about %s to go", Duration(s.ETA))
	}
	for _, why := range s.Waits {
		add("%s", why)
	}
	if s.Unconfirmed {
		add("unconfirmed")
	}
	if s.Reason != lockkeeper.NoReason && s.State == lockkeeper.Held {
		add("conversion undone: %s", s.Reason)
	}
	if s.Asked != nil {
		add("%s", askedOf(s.Asked))
	} else if s.Left != lockkeeper.Forever && s.State != lockkeeper.Ended {
		add("%s left", Duration(s.Left))
	}
	if s.Note != "" {
		add("%q", s.Note)
	}
	return all
}

func askedOf(a *lockkeeper.Asked) string {
	who := ""
	switch a.Reason {
	case lockkeeper.Overdue:
		who = ", overdue"
	case lockkeeper.Revoked:
		who = " by an operator"
	default:
		who = " by " + a.By.String()
	}
	if a.Left == lockkeeper.Forever {
		return "asked to yield" + who
	}
	return fmt.Sprintf("asked to yield within %s%s", Duration(a.Left), who)
}

// trimLines cuts the blanks that alignment leaves at the ends of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
