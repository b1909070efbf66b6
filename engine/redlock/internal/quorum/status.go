package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// status returns c as the client sees it, as of now.
func (p *Party) status(c *claim, now time.Duration) lockkeeper.Status {
	st := lockkeeper.Status{
		Ref: c.ref(), Inside: c.want.Inside, Change: c.change, Revision: c.want.Revision,
		Grants: make([]lockkeeper.Grant, len(c.want.Targets)), Priority: c.want.Priority, Label: c.want.Label,
		Ticket: c.record.Ticket, Age: max(now-c.since, 0), Left: lockkeeper.Forever,
	}
	for i, t := range c.want.Targets {
		st.Grants[i].Target = t
	}
	switch c.phase {
	case waiting:
		st.State = lockkeeper.Waiting
		if c.bound != never {
			st.Left = max(c.bound-now, 0)
		}
	case held:
		st.State, st.Fence, st.Unconfirmed = lockkeeper.Held, c.fence, c.unconfirmed
		st.Lapsed = c.lapse != lockkeeper.NoReason
		if end := c.end(); end != never {
			st.Left = max(end-now, 0)
		}
		if a := c.asked; a != nil {
			st.Asked = &lockkeeper.Asked{By: a.by, Label: a.label, Reason: a.reason, Left: lockkeeper.Forever}
			if a.end != never {
				end := a.end - c.askDrift(now)
				st.Asked.Left, st.Asked.EndsAt = max(end-now, 0), p.base.ends(end)
			}
		}
	case ended:
		st.State, st.Reason, st.Text, st.Fence, st.Left = lockkeeper.Ended, c.reason, c.text, c.fence, 0
		st.Unconfirmed = c.unconfirmed
		st.Blockers, st.Position = c.refusals, c.position
		st.ETA = Estimate(st.Position, st.Blockers)
	}
	return st
}

// Estimate returns how long a claim with this place in line will wait: what is left of the announced
// holds of its paths. It is 0, unknown, behind other waiting claims, and if a hold is not announced.
func Estimate(position int, blockers []lockkeeper.Blocker) time.Duration {
	if position != 1 {
		return 0
	}
	var longest time.Duration
	for i := range blockers {
		if blockers[i].Why == lockkeeper.Behind || blockers[i].Left <= 0 || blockers[i].Left == lockkeeper.Forever {
			return 0
		}
		longest = max(longest, blockers[i].Left)
	}
	return longest
}

// end returns the earliest announced or enforced end of a hold; never if there is none.
func (c *claim) end() time.Duration {
	end := never
	if c.asked != nil {
		end = c.asked.end
	}
	if c.record.MaxHold > 0 {
		end = min(end, c.overdueEnd())
	}
	if c.record.Expected > 0 {
		end = min(end, c.since+c.record.Expected.duration())
	}
	return end
}

// position returns the place in line that a majority of the servers confirms: the majority-th
// smallest.
func (p *Party) position(c *claim) int {
	var buffer [7]int
	all := buffer[:0]
	for i := range c.at {
		if st := c.at[i].state; st != nil && st.Position > 0 {
			all = append(all, st.Position)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(p.majority, len(all))-1]
}

// blockers returns what c waits for, as the servers say: first what most of them name.
func (p *Party) blockers(c *claim, now time.Duration) []lockkeeper.Blocker {
	type named struct {
		lockkeeper.Blocker
		by int
	}
	var all []named
	for i := range c.at {
		b := &c.at[i]
		if b.state == nil {
			continue
		}
		for k := range b.state.Blockers {
			r := &b.state.Blockers[k]
			at := slices.IndexFunc(all, func(o named) bool {
				return o.Ref == r.Ref && o.Path == lockkeeper.Path(r.Path)
			})
			if at < 0 {
				at = len(all)
				all = append(all, named{b.blocker(r, now), 0})
			}
			all[at].by++
			if !r.Waiting && all[at].Why == lockkeeper.Behind {
				all[at].Blocker = b.blocker(r, now)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y named) int {
		if x.by != y.by {
			return y.by - x.by
		}
		return int(x.Why) - int(y.Why)
	})
	out := make([]lockkeeper.Blocker, 0, min(len(all), lockkeeper.MaxBlockers))
	for i := range all {
		if len(out) < lockkeeper.MaxBlockers {
			out = append(out, all[i].Blocker)
		}
	}
	return out
}

func (b *ballot) blocker(r *Blocker, now time.Duration) lockkeeper.Blocker {
	out := lockkeeper.Blocker{
		Ref: r.Ref, Why: lockkeeper.HeldBy, Path: lockkeeper.Path(r.Path), Mode: lockkeeper.ModeExclusive,
		Age: (b.now - r.Since).duration() + max(now-b.stateSent, 0), Label: r.Label,
	}
	switch {
	case r.Waiting:
		out.Why = lockkeeper.Behind
	case b.state.Asking:
		out.Why = lockkeeper.AskedToYield
	}
	if r.Announced > 0 {
		out.Left = max((r.Announced-b.now).duration()-(now-b.stateSent), 0)
	}
	return out
}
