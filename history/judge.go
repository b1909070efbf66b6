package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Rules says what the engine claims beyond what every engine must keep.
type Rules struct {
	FIFO     bool // among equals, who began to wait first goes first
	Priority bool // higher priority goes first
	Fences   bool // fences rise with every grant
	// holds may have been taken or revoked by force: who was forced out is not counted, so counts and
	// slots are not judged
	Forced bool
	// the engine was restarted: who waited may have had to resume, and permits that fit beside theirs
	// go first meanwhile (R19)
	Restarts bool
	Running  bool // the history was cut off while it ran: requests without an answer are no fault
}

// RulesOf reads the rules from what an engine declares.
func RulesOf(g lockkeeper.Guarantees) Rules {
	return Rules{
		FIFO:     g.Features&lockkeeper.FeatureFIFO != 0,
		Priority: g.Features&lockkeeper.FeaturePriority != 0,
		Fences:   g.Features&lockkeeper.FeatureFences != 0,
	}
}

// Judge says everything that is wrong with a history, one readable line for
// each fault, which begins with the rule that was broken: exclusion, permits,
// fences, order, answers, told in time, linearizability. It returns nothing if
// all is well. The events may be in any order.
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
		wrong = append(wrong, judgeFences(spans)...)
	}
	wrong = append(wrong, judgeOrder(lives, rules)...)
	wrong = append(wrong, judgeLinear(lives, rules)...)
	return wrong
}

// judgeAnswers: exactly one final answer per request.
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

// spansOf lists all certain stretches by their beginning.
func spansOf(lives []*life) []*span {
	var spans []*span
	for _, l := range lives {
		spans = append(spans, l.spans...)
	}
	slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
	return spans
}

// judgeExclusion: certain stretches that exclude each other don't overlap.
func judgeExclusion(spans []*span) (wrong []string) {
	var live []*span
	for _, s := range spans {
		live = slices.DeleteFunc(live, func(old *span) bool { return old.to <= s.from })
		for _, old := range live {
			where, bad := clash(old.targets, s.targets)
			if !bad || old.of == s.of {
				continue
			}
			later := s // as the engine granted them
			if old.fence > s.fence {
				later = old
			}
			switch {
			case later.unconfirmed:
				// It says itself that the former holder may not know yet.
			case old.lost:
				wrong = append(wrong, fmt.Sprintf("told in time: %s: %s was granted before %s", where, s, old))
			default:
				wrong = append(wrong, fmt.Sprintf("exclusion: %s: %s and %s", where, old, s))
			}
		}
		live = append(live, s)
	}
	return wrong
}

// judgeFences: no fence twice, and rising with time where the order is certain.
func judgeFences(spans []*span) (wrong []string) {
	seen := make(map[uint64]*span)
	var grants []*span // one for each fence
	for _, s := range spans {
		if s.fence == 0 {
			wrong = append(wrong, fmt.Sprintf("fences: %s has none", s))
			continue
		}
		if old := seen[s.fence]; old == nil {
			seen[s.fence] = s
			grants = append(grants, s)
		} else if old.of != s.of {
			wrong = append(wrong, fmt.Sprintf("fences: %d was given twice: %s and %s", s.fence, old, s))
		}
	}
	wrong = append(wrong, judgeFencesByCall(grants)...)
	return append(wrong, judgeFencesByPath(spans)...)
}

// judgeFencesByCall: a grant that came back before another was asked for has
// the smaller fence.
func judgeFencesByCall(grants []*span) (wrong []string) {
	byCall := slices.SortedFunc(slices.Values(grants), func(a, b *span) int { return cmp.Compare(a.call, b.call) })
	var highest *span
	next := 0 // of grants, which are in the order of their answers
	for _, s := range byCall {
		for next < len(grants) && grants[next].from < s.call {
			if highest == nil || grants[next].fence > highest.fence {
				highest = grants[next]
			}
			next++
		}
		if highest != nil && s.fence < highest.fence {
			wrong = append(wrong, fmt.Sprintf("fences: %s was asked for after %s", s, highest))
		}
	}
	return wrong
}

// judgeFencesByPath: of two holds that exclude each other, the earlier one has
// the smaller fence.
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
				continue // the answer to who was forced out for it may have come later
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

// at writes a moment that may not have come.
func at(d time.Duration) string {
	if d == never {
		return "never"
	}
	return d.String()
}
