package history_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// line parses a compact history: one word for each event, at the times 1, 2, 3 …
type line []history.Event

func (l line) add(e history.Event) line {
	e.At = time.Duration(len(l) + 1)
	if e.Client == "" {
		e.Client = "client-" + e.Claim
	}
	return append(l, e)
}

func x(p string) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(p), Mode: lockkeeper.ModeExclusive}
}

func s(p string) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(p), Mode: lockkeeper.ModeShared}
}

func p(path string, units, limit int) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModePermits, Units: units, Limit: limit}
}

func (l line) ask(claim string, targets ...lockkeeper.Target) line {
	return l.add(history.Event{Kind: history.Ask, Claim: claim, Targets: targets})
}

func (l line) askAt(priority int, claim string, targets ...lockkeeper.Target) line {
	return l.add(history.Event{Kind: history.Ask, Claim: claim, Priority: priority, Targets: targets})
}

func (l line) try(claim string, targets ...lockkeeper.Target) line {
	return l.add(history.Event{Kind: history.Ask, Claim: claim, Targets: targets, Try: true})
}

func (l line) is(claim string, kind history.Kind) line {
	return l.add(history.Event{Kind: kind, Claim: claim})
}

func (l line) refused(claim string, why lockkeeper.Reason) line {
	return l.add(history.Event{Kind: history.Refused, Claim: claim, Reason: why})
}

func (l line) granted(claim string, fence uint64, grants ...lockkeeper.Grant) line {
	return l.add(history.Event{Kind: history.Granted, Claim: claim, Fence: fence, Grants: grants})
}

func (l line) unconfirmed(claim string, fence uint64) line {
	return l.add(history.Event{Kind: history.Granted, Claim: claim, Fence: fence, Unconfirmed: true})
}

func (l line) convert(claim string, targets ...lockkeeper.Target) line {
	return l.add(history.Event{Kind: history.Convert, Claim: claim, Targets: targets})
}

func (l line) converted(claim string, fence uint64) line {
	return l.add(history.Event{Kind: history.Converted, Claim: claim, Fence: fence})
}

func (l line) counted(claim, path string, value int64) line {
	return l.add(history.Event{Kind: history.Counted, Claim: claim, Path: lockkeeper.Path(path), Value: value})
}

func (l line) count(claim, path string) line {
	return l.add(history.Event{Kind: history.Count, Claim: claim, Path: lockkeeper.Path(path)})
}

// whole returns the events of a request, its grant, the release and its answer.
func (l line) whole(claim string, fence uint64, targets ...lockkeeper.Target) line {
	return l.ask(claim, targets...).granted(claim, fence).is(claim, history.Release).is(claim, history.Released)
}

func permitGrant(t lockkeeper.Target, inUse, slot int) lockkeeper.Grant {
	return lockkeeper.Grant{Target: t, InUse: inUse, Slot: slot}
}

var all = history.Rules{FIFO: true, Priority: true, Fences: true}

func TestLegalHistories(t *testing.T) {
	one := p("p", 1, 2)
	legal := map[string]line{
		"one after the other": line{}.whole("a", 1, x("db")).whole("b", 2, x("db")),
		"a waiter is granted after the release was called": line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db")).is("b",
			history.Waits).
			is("a", history.Release).granted("b", 2).is("a", history.Released).is("b", history.Release).is("b",
			history.Released),
		"readers together":           line{}.ask("a", s("db")).granted("a", 1).ask("b", s("db")).granted("b", 2),
		"siblings together":          line{}.ask("a", x("db/1")).granted("a", 1).ask("b", x("db/2")).granted("b", 2),
		"names that only look alike": line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db2/x")).granted("b", 2),
		"permits beside work below": line{}.ask("a", p("db", 1, 1)).granted("a", 1,
			permitGrant(p("db", 1, 1), 1, 1)).ask("b", x("db/1")).granted("b", 2),
		"a limit of one's own": line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 1)).ask("b", one).granted("b", 2,
			permitGrant(one, 2, 2)).
			ask("c", p("p", 1, 3)).granted("c", 3, permitGrant(p("p", 1, 3), 3, 3)).
			is("c", history.Release).is("c", history.Released).is("a", history.Release).is("a", history.Released),
		"two grants in flight may have any fences": line{}.ask("a", x("a")).ask("b", x("b")).granted("a", 2).granted("b", 1),
		"notified, then the next grant": line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db")).is("b",
			history.Waits).is("a", history.Lost).granted("b", 2),
		"taken, and it says so": line{}.ask("a", x("db")).granted("a", 1).askAt(1, "b", x("db")).unconfirmed("b", 2).is("a",
			history.Lost),
		"a dead client does nothing": line{}.ask("a", x("db")).granted("a",
			1).add(history.Event{Kind: history.Gone, Client: "client-a"}).
			ask("b", x("db")).granted("b", 2),
		"an upgrade": line{}.ask("a", s("db")).granted("a", 1).ask("b", s("db")).granted("b", 2).convert("a", x("db")).
			is("b", history.Release).converted("a", 3).is("b", history.Released).is("a", history.Release).is("a",
			history.Released).ask("c", x("db")).granted("c", 4),
		"a downgrade lets readers in": line{}.ask("a", x("db")).granted("a", 1).convert("a", s("db")).ask("b",
			s("db")).granted("b", 2).converted("a", 1),
		"cancelled, so the next may go": line{}.ask("r", s("db")).granted("r", 1).ask("a", x("db")).is("a", history.Waits).
			is("a", history.Cancel).ask("b", s("db")).granted("b", 2).refused("a", lockkeeper.Cancelled),
		"refused before it gave up, so since when is unknown": line{}.ask("r", s("db")).granted("r", 1).ask("a",
			x("db")).is("a", history.Waits).
			ask("b", s("db")).granted("b", 2).refused("a", lockkeeper.Revoked).is("a", history.Cancel),
		"a larger limit may overtake": line{}.ask("h", p("p", 2, 2)).granted("h", 1).ask("a", p("p", 1, 2)).is("a",
			history.Waits).
			ask("b", p("p", 1, 3)).granted("b", 2, permitGrant(p("p", 1, 3), 3, 1)).is("h", history.Release).is("b",
			history.Release).
			granted("a", 3, permitGrant(p("p", 1, 2), 1, 1)),
		"urgent ones overtake": line{}.ask("h", x("db")).granted("h", 1).ask("a", x("db")).is("a", history.Waits).
			askAt(5, "b", x("db")).is("b", history.Waits).is("h", history.Release).is("h", history.Released).
			granted("b", 2).is("b", history.Release).is("b", history.Released).granted("a", 3),
		"a try finds it taken": line{}.ask("a", x("db")).granted("a", 1).try("b", x("db")).refused("b", lockkeeper.TimedOut),
		"a try finds a claim that was granted unheard": line{}.ask("a", x("db")).is("a", history.Cancel).refused("a",
			lockkeeper.Cancelled).try("b", x("db")).refused("b", lockkeeper.TimedOut),
		"a permit that was granted unheard is in use": line{}.ask("a", one).is("a", history.Cancel).refused("a",
			lockkeeper.Cancelled).ask("b", one).granted("b", 2, permitGrant(one, 2, 2)),
		"an unknown outcome allows everything": line{}.ask("a", x("db")).is("a", history.Unknown).try("b",
			x("db")).refused("b",
			lockkeeper.TimedOut).
			ask("c", x("db")).granted("c", 2),
		"a counter": line{}.ask("a", x("db")).granted("a", 1).count("a", "n").counted("a", "n", 1).count("a",
			"n").counted("a", "n", 2),
	}
	for name, events := range legal {
		t.Run(name, func(t *testing.T) {
			rules := all
			rules.Running = true
			for _, wrong := range history.Judge(events, rules) {
				t.Error(wrong)
			}
		})
	}
}

// Every kind of fault is planted once, and its own judgement must find it.
func TestPlantedFaults(t *testing.T) {
	one := p("p", 1, 2)
	three := line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 1)).ask("b", one).granted("b", 2,
		permitGrant(one, 2, 2)).ask("c", one)
	planted := []struct {
		name  string
		rule  string
		names []string // what the line must name
		line  line
	}{
		{"two writers", "exclusion", []string{"a", "b", "exclusive db"},
			line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db")).granted("b", 2)},
		{"reader beside writer", "exclusion", nil, line{}.ask("a", x("db")).granted("a", 1).ask("b", s("db")).granted("b",
			2)},
		{"writer below a reader", "exclusion", []string{"db/1"},
			line{}.ask("a", s("db")).granted("a", 1).ask("b", x("db/1")).granted("b", 2)},
		{"reader below a writer", "exclusion", nil, line{}.ask("a", x("db")).granted("a", 1).ask("b",
			s("db/1/2")).granted("b", 2)},
		{"permits under a writer", "exclusion", nil, line{}.ask("a", x("db")).granted("a", 1).ask("b",
			p("db", 1, 9)).granted("b", 2)},
		{"one of many targets", "exclusion", []string{"z"},
			line{}.ask("a", x("a"), x("z")).granted("a", 1).ask("b", x("b"), x("z")).granted("b", 2)},
		{"upgraded beside a reader", "exclusion", nil, line{}.ask("a", s("db")).granted("a", 1).ask("b", s("db")).granted("b",
			2).convert("a", x("db")).converted("a", 3)},
		{"reader beside an upgraded one", "exclusion", nil,
			line{}.ask("a", s("db")).granted("a", 1).convert("a", x("db")).converted("a", 2).ask("b", s("db")).granted("b", 3)},
		{"too many units", "permits", []string{"3 units of p"}, three.granted("c", 3, permitGrant(one, 3, 3))},
		{"slot twice", "permits", []string{"slot 1 of p"},
			line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 1)).ask("b", one).granted("b", 2, permitGrant(one, 2, 1))},
		{"no slot", "permits", []string{"slot 0"}, line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 0))},
		{"miscounted", "permits", []string{"tells 1 units in use"},
			line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 1)).ask("b", one).granted("b", 2, permitGrant(one, 1, 2))},
		{"above the largest limit, asked for at once", "permits", []string{"largest limit is 2"},
			line{}.ask("a", one).ask("b", one).ask("c", one).granted("a", 1).granted("b", 2).granted("c", 3)},
		{"above its own limit", "permits", []string{"c"},
			line{}.ask("a", p("p", 3, 3)).granted("a", 1).ask("c", one).granted("c", 2)},
		{"fence twice", "fences", []string{"7 was given twice"}, line{}.whole("a", 7, x("a")).whole("b", 7, x("b"))},
		{"fence falls", "fences", []string{"asked for after"}, line{}.whole("a", 7, x("a")).whole("b", 6, x("b"))},
		{"fence of a later holder", "fences", []string{"had ended"},
			line{}.ask("a", x("db")).ask("b", x("db/1")).granted("a", 2).
				is("a", history.Release).granted("b", 1).is("b", history.Release)},
		{"no fence", "fences", []string{"none"}, line{}.whole("a", 0, x("a"))},
		{"overtaken", "order", []string{"a", "b"}, line{}.ask("h", x("db")).granted("h", 1).ask("a", x("db")).is("a",
			history.Waits).ask("b", x("db")).
			is("h", history.Release).granted("b", 2).is("b", history.Release).is("b", history.Released).granted("a", 3)},
		{"overtaken by a smaller limit", "order", nil, line{}.ask("h", p("p", 2, 2)).granted("h", 1).ask("a",
			p("p", 2, 3)).is("a", history.Waits).ask("b", p("p", 1, 3)).
			granted("b", 2, permitGrant(p("p", 1, 3), 3, 1)).is("h", history.Release).granted("a", 3,
			permitGrant(p("p", 2, 3), 3, 0))},
		{"the urgent one overtaken", "order", []string{"priority 5"},
			line{}.ask("h", x("db")).granted("h", 1).askAt(5, "a", x("db")).is("a", history.Waits).ask("b", x("db")).
				is("h", history.Release).granted("b", 2).is("b", history.Release).granted("a", 3)},
		{"no answer", "answers", []string{"never answered"}, line{}.ask("a", x("db"))},
		{"two answers", "answers", []string{"2 final answers"},
			line{}.ask("a", x("db")).refused("a", lockkeeper.Cancelled).granted("a", 1)},
		{"granted twice", "answers", []string{"2 final answers"}, line{}.ask("a", x("db")).granted("a", 1).granted("a", 2)},
		{"an answer without a request", "answers", []string{"never asked for"}, line{}.granted("a", 1)},
		{"asked for twice", "answers", []string{"twice"}, line{}.ask("a", x("db")).ask("a", x("db")).granted("a", 1)},
		{"notified too late", "notified in time", []string{"knew of its loss"},
			line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db")).is("b", history.Waits).
				granted("b", 2).is("a", history.Lost)},
		{"a try that finds a free lock taken", "linearizability", []string{"db"},
			line{}.whole("a", 1, x("db")).try("b", x("db")).refused("b", lockkeeper.TimedOut)},
		{"a holder that never released", "linearizability", nil,
			line{}.ask("a", x("db")).granted("a", 1).ask("b", x("db")).granted("b", 2).
				is("a", history.Release).is("a", history.Released)},
		{"permits that count wrong", "linearizability", []string{"in use"},
			line{}.ask("a", one).granted("a", 1, permitGrant(one, 1, 1)).
				is("a", history.Release).is("a", history.Released).ask("b", one).granted("b", 2, permitGrant(one, 2, 2))},
		{"an update is lost", "linearizability", []string{"counter"},
			line{}.ask("a", x("db")).granted("a", 1).count("a", "n").counted("a", "n", 1).
				count("a", "n").counted("a", "n", 1)},
	}
	for _, plant := range planted {
		t.Run(plant.name, func(t *testing.T) {
			wrong := history.Judge(plant.line, all)
			found := slices.ContainsFunc(wrong, func(text string) bool {
				for _, name := range plant.names {
					if !strings.Contains(text, name) {
						return false
					}
				}
				return strings.HasPrefix(text, plant.rule+": ")
			})
			if !found {
				t.Errorf("not found as %q with %q; found: %q", plant.rule, plant.names, wrong)
			}
			for _, text := range wrong {
				if !plant.line.names(text) {
					t.Errorf("the verdict names no claim with the time of an event: %s", text)
				}
			}
		})
	}
}

// names reports whether text names a claim of l, and the time of an event of that claim.
func (l line) names(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;:[]()", r) })
	return slices.ContainsFunc(l, func(e history.Event) bool {
		return slices.Contains(words, e.Claim) && slices.Contains(words, e.At.String())
	})
}

// Fences are judged only for engines that claim them.
func TestFencesOnlyWhereClaimed(t *testing.T) {
	falling := line{}.ask("a", x("db")).granted("a", 2).is("a", history.Release).is("a", history.Released).
		ask("b", x("db")).granted("b", 1)
	if wrong := history.Judge(falling, history.Rules{Running: true}); len(wrong) > 0 {
		t.Error(wrong)
	}
	if wrong := history.Judge(falling, history.Rules{Running: true, Fences: true}); len(wrong) == 0 {
		t.Error("falling fences are not found")
	}
}

// Where fences rise on each path by itself, only grants whose paths meet are compared.
func TestFencesOfEachPath(t *testing.T) {
	rules := history.Rules{Running: true, Fences: true, PathFences: true}
	for name, c := range map[string]struct {
		history line
		faults  int
	}{
		"lower on another path": {line{}.whole("a", 7, x("a")).whole("b", 6, x("b")), 0},
		"twice on two paths":    {line{}.whole("a", 7, x("a")).whole("b", 7, x("b")), 0},
		"lower on the path, then above": {line{}.whole("a", 7, x("a")).whole("b", 9, x("b")).
			whole("c", 6, x("a")).whole("d", 8, x("a/1")), 2},
		"twice on the path":   {line{}.whole("a", 7, x("a")).whole("b", 7, x("a")), 1},
		"lower below a path":  {line{}.whole("a", 7, x("a")).whole("b", 6, x("a/1")), 2},
		"lower above a path":  {line{}.whole("a", 7, x("a/1")).whole("b", 6, x("a")), 2},
		"higher on two paths": {line{}.whole("a", 7, x("a")).whole("b", 8, x("b")), 0},
	} {
		if wrong := history.Judge(c.history, rules); len(wrong) != c.faults {
			t.Errorf("%s: %d faults, want %d: %q", name, len(wrong), c.faults, wrong)
		}
	}
}

// Simultaneous tries may refuse each other where votes can be split; a lock that is held is still held.
func TestTriesUnderSplitVotes(t *testing.T) {
	rules := history.Rules{SplitVotes: true}
	refused := line{}.try("a", x("db")).try("b", x("db")).refused("a", lockkeeper.TimedOut).refused("b",
		lockkeeper.TimedOut)
	if wrong := history.Judge(refused, rules); len(wrong) > 0 {
		t.Error(wrong)
	}
	if wrong := history.Judge(refused, history.Rules{}); len(wrong) == 0 {
		t.Error("the tries are legal also where votes can't be split")
	}
	both := line{}.try("a", x("db")).try("b", x("db")).granted("a", 1).granted("b", 2)
	if wrong := history.Judge(both, rules); len(wrong) == 0 {
		t.Error("two tries may both be granted")
	}
}

// sent returns the events of a claim that is requested and handed to the engine.
func (l line) sent(claim string, targets ...lockkeeper.Target) line {
	return l.ask(claim, targets...).is(claim, history.Sent)
}

// Order is judged only between claims whose places in line are certain.
func TestOrderOfCertainPlaces(t *testing.T) {
	held := line{}.sent("h", x("db")).granted("h", 1)
	first := func(l line, fence uint64) line { // b is granted before a
		return l.is("h", history.Release).is("h", history.Released).granted("b", fence).is("b", history.Release).
			is("b", history.Released)
	}
	for name, c := range map[string]struct {
		history line
		found   bool
	}{
		"the session ended, and the claim was sent again": {first(held.sent("a", x("db")).is("a", history.Waits).
			sent("b", x("db")).is("b", history.Waits).
			is("a", history.Sent).is("a", history.Waits), 2).granted("a", 3), false},
		"the client discarded the answer, and sent the claim again": {first(held.sent("a", x("db")).
			is("a", history.Waits).is("a", history.Sent).sent("b", x("db")).is("a", history.Waits), 2).
			granted("a", 3), false},
		"the first answer was lost": {first(held.sent("a", x("db")).sent("b", x("db")).is("b", history.Waits).
			is("a", history.Sent).is("a", history.Waits), 2).granted("a", 3), false},
		"a grant that reached nobody, given up later": {first(held.sent("a", x("db")).is("a", history.Waits).
			sent("b", x("db")).is("b", history.Waits), 3).is("a", history.Cancel).
			refused("a", lockkeeper.Cancelled), false},
		"the same, and the outcome remains unknown": {first(held.sent("a", x("db")).is("a", history.Waits).
			sent("b", x("db")).is("b", history.Waits), 3).is("a", history.Cancel).is("a", history.Unknown), false},
		"overtaken": {first(held.sent("a", x("db")).is("a", history.Waits).sent("b", x("db")), 2).
			granted("a", 3), true},
		"overtaken by a claim asked for early and sent late": {first(held.ask("b", x("db")).sent("a", x("db")).
			is("a", history.Waits).is("b", history.Sent), 2).granted("a", 3), true},
		"overtaken after it was sent again": {first(held.sent("a", x("db")).is("a", history.Waits).
			is("a", history.Sent).is("a", history.Waits).sent("b", x("db")), 2).granted("a", 3), true},
		"overtaken, and asked about after the grant": {first(held.sent("a", x("db")).is("a", history.Waits).
			sent("b", x("db")), 2).granted("a", 3).is("a", history.Sent), true},
	} {
		rules := all
		rules.Running = true
		wrong := history.Judge(c.history, rules)
		found := len(wrong) == 1 && strings.HasPrefix(wrong[0], "order: a ")
		if c.found != found || !c.found && len(wrong) > 0 {
			t.Errorf("%s: found %q, want a fault of order: %t", name, wrong, c.found)
		}
	}
}

// Unclaimed rules are not judged.
func TestOrderOnlyWhereClaimed(t *testing.T) {
	overtaken := line{}.ask("h", x("db")).granted("h", 1).ask("a", x("db")).is("a", history.Waits).ask("b", x("db")).
		is("h", history.Release).is("h", history.Released).granted("b", 2).is("b", history.Release).is("b",
		history.Released).granted("a", 3)
	if wrong := history.Judge(overtaken, history.Rules{}); len(wrong) > 0 {
		t.Error(wrong)
	}
	if wrong := history.Judge(overtaken, history.Rules{Priority: true}); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// A cancelled claim may have been granted without an answer: permits are then held beside each other.
func TestOrderOfUnansweredGrants(t *testing.T) {
	one := p("p", 1, 2)
	unheard := line{}.ask("h", p("p", 2, 2)).granted("h", 1).ask("a", one).is("a", history.Waits).is("h",
		history.Release).is("h", history.Released).
		ask("b", one).granted("b", 3).is("a", history.Cancel).refused("a", lockkeeper.Cancelled)
	if wrong := history.Judge(unheard, all); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// The events of several recorders may be in any order.
func TestJudgeSorts(t *testing.T) {
	events := line{}.ask("a", x("db")).granted("a", 1).is("a", history.Release).is("a", history.Released).
		ask("b", x("db")).granted("b", 2).is("b", history.Release).is("b", history.Released)
	slices.Reverse(events)
	if wrong := history.Judge(events, all); len(wrong) > 0 {
		t.Error(wrong)
	}
}

func TestRecorderOfManyGoroutines(t *testing.T) {
	still := func() time.Duration { return 5 }
	var out bytes.Buffer
	r := history.NewRecorder(still, &out)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 50 {
				claim := fmt.Sprintf("%d.%d", i, k)
				r.Add(history.Event{
					Kind:    history.Ask,
					Client:  fmt.Sprint(i),
					Claim:   claim,
					Targets: []lockkeeper.Target{p("p", 2, 3)},
				})
				r.Add(history.Event{Kind: history.Refused, Client: fmt.Sprint(i), Claim: claim, Reason: lockkeeper.TimedOut})
			}
		})
	}
	wg.Wait()
	events := r.Events()
	if len(events) != 800 {
		t.Fatalf("%d events, want 800", len(events))
	}
	for i := range events[1:] {
		if events[i+1].At <= events[i].At {
			t.Fatalf("event %d is at %d, the one before at %d: want rising moments", i+1, events[i+1].At, events[i].At)
		}
	}
	out.WriteString(`{"at":99,"kind":"as`) // the process was killed during the write
	read, err := history.Read(&out)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	if len(read) != len(events) || read[17].Claim != events[17].Claim || read[17].At != events[17].At ||
		read[17].Kind != events[17].Kind {
		t.Errorf("read back %d events, the 18th %v, want %v", len(read), read[17], events[17])
	}
	if _, err := history.Read(strings.NewReader("nonsense\n")); err == nil {
		t.Error("a line that is no event is accepted")
	}
}

func TestMergeKeepsTheClock(t *testing.T) {
	a := []history.Event{{At: 1, Claim: "a"}, {At: 5, Claim: "b"}}
	b := []history.Event{{At: 3, Claim: "c"}}
	var order string
	for _, e := range history.Merge(a, b) {
		order += e.Claim
	}
	if order != "acb" {
		t.Errorf("merged in the order %s, want acb", order)
	}
}
