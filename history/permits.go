package history

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// judgePermits checks the units of a path:
//
//   - the units certainly held are at most the largest limit of their holders;
//   - the units held during the whole of a request, plus those of its grant, are at most the grant's
//     limit, and at most the count in the grant;
//   - no slot is held twice.
func judgePermits(spans []*span, rules Rules) (wrong []string) {
	live := make(map[lockkeeper.Path][]*span)
	for _, s := range spans {
		for i, t := range s.targets {
			if t.Mode != lockkeeper.ModePermits {
				continue
			}
			here := slices.DeleteFunc(live[t.Path], func(old *span) bool { return old.to <= s.from })
			wrong = append(wrong, s.judgeUnits(t, here)...)
			if i < len(s.grants) && !rules.Forced {
				wrong = append(wrong, s.judgeGrant(s.grants[i], here)...)
			}
			live[t.Path] = append(here, s)
		}
	}
	return wrong
}

// judgeUnits checks the units at the moment when s became certain.
func (s *span) judgeUnits(t lockkeeper.Target, others []*span) (wrong []string) {
	sum, largest, throughout := t.Units, t.Limit, t.Units
	for _, old := range others {
		their := old.target(t.Path)
		sum += their.Units
		largest = max(largest, their.Limit)
		if old.from < s.call {
			throughout += their.Units // held from before the request of s until after its answer
		}
	}
	if s.unconfirmed || slices.ContainsFunc(others, func(old *span) bool { return old.unconfirmed }) {
		return nil // the engine may have ended one of the holds, and its holder does not know yet
	}
	switch {
	case throughout > t.Limit:
		wrong = append(wrong, fmt.Sprintf("permits: %d units of %s in use with the grant of %s, beside %v", throughout,
			t.Path, s, others))
	case sum > largest:
		wrong = append(wrong, fmt.Sprintf("permits: %d units of %s held, the largest limit is %d: %s beside %v", sum, t.Path,
			largest, s, others))
	}
	return wrong
}

// judgeGrant checks the numbers in the grant.
func (s *span) judgeGrant(g lockkeeper.Grant, others []*span) (wrong []string) {
	throughout := g.Units
	for _, old := range others {
		if old.from < s.call {
			throughout += old.target(g.Path).Units
		}
		for _, o := range old.grants {
			if o.Path == g.Path && g.Slot != 0 && o.Slot == g.Slot && !s.unconfirmed {
				wrong = append(wrong, fmt.Sprintf("permits: slot %d of %s is held twice: %s and %s", g.Slot, g.Path, old, s))
			}
		}
	}
	switch {
	case g.Mode != lockkeeper.ModePermits:
	case g.InUse < throughout && !s.unconfirmed:
		wrong = append(wrong, fmt.Sprintf("permits: %s tells %d units in use, but %d were: %v", s, g.InUse, throughout,
			others))
	case g.InUse > g.Limit:
		wrong = append(wrong, fmt.Sprintf("permits: %s tells %d units in use, above its own limit", s, g.InUse))
	}
	if g.Units == 1 && (g.Slot < 1 || g.Slot > g.Limit) {
		wrong = append(wrong, fmt.Sprintf("permits: %s has slot %d, which is none of 1 to %d", s, g.Slot, g.Limit))
	}
	return wrong
}

// target returns the target of s at the path.
func (s *span) target(p lockkeeper.Path) lockkeeper.Target {
	i := slices.IndexFunc(s.targets, func(t lockkeeper.Target) bool { return t.Path == p })
	if i < 0 {
		return lockkeeper.Target{}
	}
	return s.targets[i]
}
