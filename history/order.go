package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// judgeOrder checks the order of grants: if a client knew that a claim waits before another client
// requested a later claim, and the rules put the first before the later one, the later one must not
// overtake it.
func judgeOrder(lives []*life, rules Rules) (wrong []string) {
	if !rules.FIFO && !rules.Priority {
		return nil
	}
	byWait := slices.DeleteFunc(slices.Clone(lives), func(l *life) bool { return l.waits == never || l.ask.Soft })
	slices.SortFunc(byWait, func(a, b *life) int { return cmp.Compare(a.waits, b.waits) })
	byAsk := slices.SortedFunc(slices.Values(lives), func(a, b *life) int { return cmp.Compare(a.ask.At, b.ask.At) })
	var queue []*life
	next := 0
	for _, late := range byAsk {
		for next < len(byWait) && byWait[next].waits < late.ask.At {
			queue = append(queue, byWait[next])
			next++
		}
		queue = slices.DeleteFunc(queue, func(l *life) bool {
			return len(l.answers) > 0 && l.answers[0].At < late.ask.At || l.ended < late.ask.At
		})
		for _, early := range queue {
			if early.goesBefore(late, rules) && early.wasOvertaken(late, rules) {
				wrong = append(wrong, fmt.Sprintf("order: %s %v (priority %d, waits since %s, granted at %s with fence %d, "+
					"given up at %s) was overtaken by %s (priority %d, asked for at %s)",
					early.ask.Claim, early.ask.Targets, early.ask.Priority, early.waits, at(early.grantedAt()), early.fence(),
					at(early.cancel),
					late.spans[0], late.ask.Priority, late.ask.At))
			}
		}
	}
	return wrong
}

// goesBefore reports whether the rules put the waiting claim l before the later claim other.
func (l *life) goesBefore(other *life, rules Rules) bool {
	switch {
	case l.ask.Priority > other.ask.Priority && !rules.Priority:
		return false
	case l.ask.Priority == other.ask.Priority && !rules.FIFO:
		return false
	case l.ask.Priority < other.ask.Priority:
		return false
	}
	if _, bad := clash(l.ask.Targets, other.ask.Targets); bad {
		return true
	}
	if len(l.ask.Targets) != 1 || rules.Forced || rules.Restarts {
		// l may wait for another path or for its session to resume, and meanwhile other may take
		// permits of their common path. A stolen hold goes to the thief before any other claim.
		return false
	}
	// Permits of one path: without a larger limit, other cannot fit where l did not.
	mine := l.ask.Targets[0]
	return mine.Mode == lockkeeper.ModePermits && slices.ContainsFunc(other.ask.Targets, func(t lockkeeper.Target) bool {
		return t.Path == mine.Path && t.Mode == lockkeeper.ModePermits && t.Limit <= mine.Limit
	})
}

// wasOvertaken reports whether other was certainly granted while l waited.
func (l *life) wasOvertaken(other *life, rules Rules) bool {
	if other.grant == nil || len(other.spans) == 0 {
		return false
	}
	if l.grant != nil {
		return other.grant.Fence < l.grant.Fence
	}
	if rules.Forced {
		return false // the engine may have granted l and forced its end, without an answer
	}
	if _, bad := clash(l.ask.Targets, other.ask.Targets); !bad {
		return false // the engine may have granted l without an answer, beside other
	}
	if l.cancel == never || len(l.answers) > 0 && l.answers[0].At < l.cancel {
		return false // the engine ended the wait at an unknown time
	}
	return other.grant.At < l.cancel && other.grant.At < l.ended
}

func (l *life) fence() uint64 {
	if l.grant == nil {
		return 0
	}
	return l.grant.Fence
}
