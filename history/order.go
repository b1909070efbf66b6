package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// judgeOrder checks the order of grants: if a client knew that a claim waits before another client
// sent a later claim, and the rules put the first before the later one, the later one must not
// overtake it.
func judgeOrder(lives []*life, rules Rules) (wrong []string) {
	if !rules.FIFO && !rules.Priority {
		return nil
	}
	byWait := slices.DeleteFunc(slices.Clone(lives), func(l *life) bool {
		return l.waits == never || l.ask.Soft || l.grant == nil || len(l.spans) == 0
	})
	slices.SortFunc(byWait, func(a, b *life) int { return cmp.Compare(a.waits, b.waits) })
	byArrival := slices.SortedFunc(slices.Values(lives), func(a, b *life) int {
		return cmp.Compare(a.arrival(), b.arrival())
	})
	var queue []*life
	next := 0
	for _, late := range byArrival {
		for next < len(byWait) && byWait[next].waits < late.arrival() {
			queue = append(queue, byWait[next])
			next++
		}
		queue = slices.DeleteFunc(queue, func(l *life) bool { return l.answers[0].At < late.arrival() })
		for _, early := range queue {
			if early.goesBefore(late, rules) && early.wasOvertaken(late) {
				wrong = append(wrong, fmt.Sprintf("order: %s (priority %d, sent at %s, waits since %s) was overtaken by %s "+
					"(priority %d, sent at %s)", early.spans[0], early.ask.Priority, early.arrival(), early.waits,
					late.spans[0], late.ask.Priority, late.arrival()))
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

// wasOvertaken reports whether the engine granted other before it granted l. Without a grant of l the
// history cannot tell: the engine may have granted l first and ended it before its client knew.
func (l *life) wasOvertaken(other *life) bool {
	return other.grant != nil && len(other.spans) > 0 && other.grant.Fence < l.grant.Fence
}
