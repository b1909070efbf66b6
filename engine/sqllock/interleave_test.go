package sqllock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// TestInterleavings lets two or three commands of different sessions happen at once, their
// statements in any order that latches and locked rows allow, after random commands that happened
// one after the other. The result must be that of the whole table for some order of the commands.
func TestInterleavings(t *testing.T) {
	for _, v := range []variant{{name: "usual", bounds: usual}, {name: "whole tree", bounds: bounds{
		prefix:      usual.prefix,
		shortPrefix: usual.shortPrefix,
		mostClaims:  usual.mostClaims,
		latches:     3,
	}}} {
		t.Run(v.name, func(t *testing.T) {
			for seed := range testmode.Seeds(t, sequences()) {
				all := model.Generate(seed, 10+int(seed%40))
				diff := v.raceDifference(seed, all)
				if diff == "" {
					continue
				}
				all = model.Shrink(all, func(c []table.Command) bool { return v.raceDifference(seed, c) != "" })
				var told strings.Builder
				for _, c := range all {
					fmt.Fprintln(&told, story.Format(c))
				}
				t.Fatalf("replay: %s\n\n%s\n%s", testmode.Replay(t, seed), v.raceDifference(seed, all), told.String())
			}
		})
	}
}

// raceDifference plays all but the last commands one after the other, and those at once.
func (v variant) raceDifference(seed uint64, all []table.Command) string {
	w := newWorld(seed, v)
	n := w.atOnce(all)
	if n == 0 {
		return ""
	}
	for _, c := range all[:len(all)-n] {
		if w.play([]table.Command{c}) != "" {
			return "" // what TestParts is for
		}
	}
	last := all[len(all)-n:]
	at := last[0].At + beginning
	if due, any := w.whole.Next(); any && w.IntN(2) == 0 && len(w.rows.tables.freezes) == 0 {
		at = due // a transaction notices there what is due
		w.unnoticed = true
	} else if w.pass(at) != "" {
		return ""
	}
	w.rows.now = max(w.rows.now, at)
	var calls []*played
	for _, c := range last {
		c.At = w.rows.now
		if p := w.prepare(w.runner.Complete(c)); p != nil && !p.refused {
			calls = append(calls, p)
		}
	}
	if w.IntN(2) == 0 && len(w.live()) > 0 {
		calls = append(calls, w.lookCall())
	}
	return w.raceOf(calls, allTurns, w.IntN)
}

// lookCall is a call that checks all claims that have not ended.
func (w *world) lookCall() *played {
	look := &played{command: table.Command{Op: table.Pass, At: w.rows.now}, e: w.engines[w.IntN(2)]}
	look.call = func() error { look.e.check(w.live()); return nil }
	return look
}

// raceOf has calls begin at once, and tells how the outcome differs from that of every order of
// them.
func (w *world) raceOf(calls []*played, turns []string, choose func(int) int) string {
	before := w.whole.Snapshot()
	r, err := w.race(calls, turns, choose)
	if err != nil {
		return err.Error()
	}
	w.settle()
	w.look()
	diffs := w.likeSomeOrder(before, calls)
	if diffs == "" {
		return ""
	}
	return "at once:\n" + strings.Join(r.told, "\n") + "\n\n" + diffs
}

// atOnce is how many of the last commands can happen at once: they are of different sessions.
func (w *world) atOnce(all []table.Command) int {
	n, seen := 0, make(map[string]bool)
	for n < min(len(all), 2+w.IntN(2)) {
		c := all[len(all)-1-n]
		if c.Op == table.Pass || c.Op == table.Gone || c.Op == table.Restart || seen[sessionOf(c)] {
			break
		}
		seen[sessionOf(c)] = true
		n++
	}
	return n
}

// likeSomeOrder reports how the outcome differs from that of each order in which the
// whole table may be given the commands; nothing if it is that of one of them. What a command
// acknowledges may count before something falls due that its transaction does not notice.
func (w *world) likeSomeOrder(before table.Snapshot, calls []*played) string {
	var diffs strings.Builder
	fences, tickets, epochs := w.fences, w.tickets, w.epochs
	for _, order := range orders(calls) {
		for _, early := range []bool{false, true} {
			w.fences, w.tickets, w.epochs = fences.clone(), tickets.clone(), epochs.clone()
			diff := w.likeOrder(before, order, early)
			if diff == "" {
				return ""
			}
			fmt.Fprintf(&diffs, "Not like this order, early acks %t:\n", early)
			for _, p := range order {
				fmt.Fprintln(&diffs, "   ", story.Format(p.command))
			}
			fmt.Fprintln(&diffs, diff)
		}
	}
	return diffs.String()
}

// likeOrder gives the whole table the commands in an order, and reports how the outcome differs. If
// early, what the commands acknowledge counts before anything else happens.
func (w *world) likeOrder(before table.Snapshot, order []*played, early bool) (diff string) {
	w.whole = table.New()
	if err := w.whole.Load(before); err != nil {
		return err.Error()
	}
	for _, p := range order {
		if early {
			_, _ = w.whole.Step(&table.Command{Op: table.Pass, At: w.rows.now, Key: p.command.Key, Alone: true})
		}
	}
	for _, p := range order {
		c := p.command
		if alone := w.rows.now; c.Op == table.Renew && w.lives(c.Key.Session) {
			c.Alone, c.At = true, alone // nothing that is due is noticed by a renewal
		}
		reply, err := w.whole.Step(&c)
		if diff == "" && !w.unnoticed {
			diff = w.differAnswer(p, reply, err)
		}
	}
	_, _ = w.whole.Step(&table.Command{Op: table.Pass, At: w.rows.now})
	return cmp.Or(diff, w.differ())
}

// lives reports whether the whole table has a session that does not end now.
func (w *world) lives(id string) bool {
	return slices.ContainsFunc(w.whole.Snapshot().Sessions, func(s table.SessionRecord) bool {
		return s.ID == id && s.Deadline > w.rows.now
	})
}

func (p pairs) clone() pairs { return pairs{slices.Clone(p.all), p.loose} }

// orders are all orders of calls.
func orders(calls []*played) [][]*played {
	if len(calls) == 0 {
		return [][]*played{nil}
	}
	var all [][]*played
	for i, first := range calls {
		for _, rest := range orders(slices.Concat(calls[:i], calls[i+1:])) {
			all = append(all, append([]*played{first}, rest...))
		}
	}
	return all
}
