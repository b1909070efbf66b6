package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Rules are the rules of one history beyond those of every engine.
type Rules struct {
	FIFO     bool // claims of equal priority are granted in the order in which they began to wait
	Priority bool // higher priority is granted first
	Fences   bool // fences rise with every grant
	// PathFences: with Fences, they rise on each path by itself. The judge compares only fences of
	// grants of which one has a path that is equal to a path of the other, above it or below it.
	PathFences bool
	// Forced: the engine may have ended holds as stolen or revoked before their clients knew. Such
	// a hold looks certain but counts no more, so the judge does not judge counts and slots.
	Forced bool
	// Restarts: the engine restarted. While a session of a waiting claim had to resume, the engine
	// may have granted later permits that fit beside that claim (R19).
	Restarts bool
	// SplitVotes: requests that arrive at the same moment may refuse each other's tries, so the judge
	// does not judge why a try was refused.
	SplitVotes bool
	Running    bool // the history is incomplete: a request without an answer is no fault
}

// RulesOf returns the rules for an engine with these guarantees.
func RulesOf(g lockkeeper.Guarantees) Rules {
	return Rules{
		FIFO:       g.Features&lockkeeper.FeatureFIFO != 0,
		Priority:   g.Features&lockkeeper.FeaturePriority != 0,
		Fences:     g.Features&lockkeeper.FeatureFences != 0,
		PathFences: g.FenceScope == lockkeeper.FencesPerPath,
	}
}

// Judge returns one readable line for each fault of a history. A line begins with the judgement:
// exclusion, permits, fences, order, answers, notified in time, linearizability. The events may be
// in any order.
func Judge(events []Event, rules Rules) []string {
	events = Merge(events)
	lives := fold(events)
	var wrong []string
	for _, l := range lives {
		wrong = append(wrong, l.wrong...)
		wrong = append(wrong, l.judgeAnswers(rules)...)
	}
	spans := spansOf(lives)
	wrong = append(wrong, judgeExclusion(spans)...)
	wrong = append(wrong, judgePermits(spans, rules)...)
	if rules.Fences {
		wrong = append(wrong, judgeFences(spans, rules.PathFences)...)
	}
	wrong = append(wrong, judgeOrder(lives, rules)...)
	wrong = append(wrong, judgeLinear(lives, rules)...)
	return wrong
}

// judgeAnswers checks that every request has exactly one final answer.
func (l *life) judgeAnswers(rules Rules) []string {
	switch {
	case len(l.answers) == 0 && !rules.Running && l.end.Kind != Gone:
		return []string{fmt.Sprintf("answers: %s of %s, asked for at %s, was never answered", l.ask.Claim, l.ask.Client,
			l.ask.At)}
	case len(l.answers) > 1:
		text := fmt.Sprintf("answers: %s of %s has %d final answers:", l.ask.Claim, l.ask.Client, len(l.answers))
		for _, a := range l.answers {
			text += fmt.Sprintf(" %s at %s (fence %d);", a.Kind, a.At, a.Fence)
		}
		return []string{text}
	}
	return nil
}

// spansOf returns all certain intervals, sorted by their beginning.
func spansOf(lives []*life) []*span {
	var spans []*span
	for _, l := range lives {
		spans = append(spans, l.spans...)
	}
	slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
	return spans
}

// judgeExclusion checks that certain intervals that exclude each other do not overlap.
func judgeExclusion(spans []*span) (wrong []string) {
	var live []*span
	for _, s := range spans {
		live = slices.DeleteFunc(live, func(old *span) bool { return old.to <= s.from })
		for _, old := range live {
			where, bad := clash(old.targets, s.targets)
			if !bad || old.of == s.of {
				continue
			}
			later := s // the later grant, by fence
			if old.fence > s.fence {
				later = old
			}
			switch {
			case later.unconfirmed:
				// The grant says that the former holder may not know of its loss.
			case old.lost:
				wrong = append(wrong, fmt.Sprintf("notified in time: %s: %s was granted before %s", where, s, old))
			default:
				wrong = append(wrong, fmt.Sprintf("exclusion: %s: %s and %s", where, old, s))
			}
		}
		live = append(live, s)
	}
	return wrong
}

// judgeFencesByPath checks that of two holds that exclude each other, the earlier one has the lower
// fence.
func judgeFencesByPath(spans []*span) (wrong []string) {
	type mark struct {
		path lockkeeper.Path
		kind kind
	}
	highest := make(map[mark]*span)
	byEnd := slices.SortedFunc(slices.Values(spans), func(a, b *span) int { return cmp.Compare(a.to, b.to) })
	next := 0
	for _, s := range spans {
		for next < len(byEnd) && byEnd[next].to <= s.from {
			old := byEnd[next]
			next++
			if old.unconfirmed {
				continue // the answer to the evicted holder may have come later
			}
			marks(old.targets, func(p lockkeeper.Path, k kind) {
				if h := highest[mark{p, k}]; h == nil || old.fence > h.fence {
					highest[mark{p, k}] = old
				}
			})
		}
		var worst *span
		marks(s.targets, func(p lockkeeper.Path, k kind) {
			for other := range kinds {
				h := highest[mark{p, other}]
				if !compatible[k][other] && h != nil && h.of != s.of && h.fence > s.fence &&
					(worst == nil || h.fence > worst.fence) {
					worst = h
				}
			}
		})
		if worst != nil {
			wrong = append(wrong, fmt.Sprintf("fences: %s was granted after %s had ended", s, worst))
		}
	}
	return wrong
}

// at formats a time, or never.
func at(d time.Duration) string {
	if d == never {
		return "never"
	}
	return d.String()
}
