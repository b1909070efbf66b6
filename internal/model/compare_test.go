package model_test

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

const commands = 60 // in one sequence

// TestCompare plays random sequences on the table and on the model, which must
// agree after each command.
func TestCompare(t *testing.T) {
	eachSequence(t, testmode.Pick(5_000, 400_000), difference)
}

// TestCompareBroad is TestCompare with claims beside each other in the tree.
func TestCompareBroad(t *testing.T) {
	eachOf(t, testmode.Pick(1_000, 100_000), model.GenerateBroad, difference)
}

// eachSequence looks for a sequence in which differs finds something, shrinks it
// to a short story and prints it with the command that replays it.
func eachSequence(t *testing.T, n int, differs func([]table.Command) string) {
	t.Helper()
	eachOf(t, n, model.Generate, differs)
}

// eachOf is eachSequence for the sequences that generate makes.
func eachOf(t *testing.T, n int, generate func(seed uint64, n int) []table.Command,
	differs func([]table.Command) string) {
	t.Helper()
	seeds := make(chan uint64)
	var found atomic.Bool
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := range seeds {
				all := generate(seed, commands)
				if differs(all) == "" || found.Swap(true) {
					continue
				}
				all = model.Shrink(all, func(c []table.Command) bool { return differs(c) != "" })
				t.Errorf("replay: %s\n\n%s\n%s", testmode.Replay(t, seed), differs(all), tell(all))
			}
		})
	}
	for seed := range testmode.Seeds(t, n) {
		if found.Load() {
			break
		}
		seeds <- seed
	}
	close(seeds)
	wait.Wait()
}

// tell writes a sequence as a story, and how the model sees it.
func tell(all []table.Command) string {
	m := model.New()
	r := story.New(m, m.List)
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintln(&b, story.Format(c))
	}
	b.WriteString("\nAs the model has it:\n")
	for _, c := range all {
		fmt.Fprintf(&b, "%s\n%s", story.Format(c), r.Play(c))
	}
	return b.String()
}

// difference plays a sequence on both and says how they first differ.
func difference(all []table.Command) (diff string) {
	t, m := table.New(), model.New()
	r := story.New(m, nil)
	for i, c := range all {
		c = r.Complete(c)
		got, gotErr, diff := safely(t, c)
		want, wantErr := m.Step(&c)
		for _, d := range []string{
			diff,
			differ("error", refusal(gotErr), refusal(wantErr)),
			differEvents(t.Events(), m.Events()),
			differLists("list", slices.Collect(t.List(lockkeeper.Query{})), m.List()),
			differReply(c, got, want, m),
		} {
			if d != "" {
				return fmt.Sprintf("Command %d, %s:\n%s", i+1, story.Format(c), d)
			}
		}
		r.Learn(c, want, wantErr)
	}
	return ""
}

// safely steps the table; a panic and a broken invariant are differences too.
func safely(t *table.Table, c table.Command) (reply table.Reply, err error, diff string) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, 4096)
			diff = fmt.Sprintf("the table panics: %v\n%s", p, stack[:runtime.Stack(stack, false)])
		}
	}()
	reply, err = t.Step(&c)
	if broken := t.Check(); broken != nil {
		diff = "Check: " + broken.Error()
	}
	return reply, err, diff
}

func differ(what, got, want string) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s of the table:\n%s\n%s of the model:\n%s\n", what, got, what, want)
}

// refusal is of an error what the rules fix.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	e := err.(*lockkeeper.Error)
	return fmt.Sprintf("%v, epoch %d", e.Err, e.Epoch)
}

// differEvents compares events whatever their order, Queued apart. The table may
// say more often that an ask changed than the model, which only looks at what the
// holder is told.
func differEvents(got, want []table.Event) string {
	if len(got) == 0 && len(want) == 0 {
		return ""
	}
	asked, all := events(got, table.AskChanged), events(want, table.AskChanged)
	if i := slices.IndexFunc(all, func(e string) bool { return !slices.Contains(asked, e) }); i >= 0 {
		return "the table lacks the event" + all[i]
	}
	others := []table.EventKind{table.Granted, table.Downgraded, table.Undone, table.Ended, table.Froze, table.Thawed}
	return differ("events", strings.Join(events(got, others...), ""), strings.Join(events(want, others...), ""))
}

// events are those of some kinds, in an order of their own.
func events(all []table.Event, kinds ...table.EventKind) []string {
	var lines []string
	for _, e := range all {
		if slices.Contains(kinds, e.Kind) {
			lines = append(lines, story.PrintEvents([]table.Event{e}))
		}
	}
	slices.Sort(lines)
	return lines
}

func differLists(what string, got, want []lockkeeper.Status) string {
	got, want = plain(got), plain(want)
	if len(got) == 0 && len(want) == 0 || reflect.DeepEqual(got, want) {
		return ""
	}
	return differ(what, text(got), text(want))
}

// plain leaves of each status what the rules fix. What has ended has only an end.
func plain(all []lockkeeper.Status) []lockkeeper.Status {
	all = slices.Clone(all)
	for i := range all {
		s := &all[i]
		s.Change, s.Text, s.Blockers = 0, "", nil
		if s.State == lockkeeper.Ended {
			*s = lockkeeper.Status{
				Ref: s.Ref, Inside: s.Inside, Revision: s.Revision, State: s.State, Reason: s.Reason,
				Priority: s.Priority, Label: s.Label, Fence: s.Fence,
			}
		}
		if len(s.Waits) == 0 {
			s.Waits = nil
		}
	}
	return all
}

func text(all []lockkeeper.Status) string {
	var b strings.Builder
	for _, s := range all {
		asked := "nothing"
		if a := s.Asked; a != nil {
			asked = fmt.Sprintf("by %s %q %s in %s", a.By, a.Label, a.Reason, story.Duration(a.Left))
		}
		fmt.Fprintf(&b, "%s inside %s rev %d, %s, %s, %v, priority %d, label %q, fence %d, unconfirmed %t, converting %t, "+
			"asked %s, age %s, left %s, ticket %d, place %d, about %s, waits %v\n",
			s.Ref, s.Inside, s.Revision, s.State, s.Reason, s.Grants, s.Priority, s.Label, s.Fence, s.Unconfirmed,
			s.Converting, asked, story.Duration(s.Age), story.Duration(s.Left), s.Ticket, s.Position, story.Duration(s.ETA),
			s.Waits)
	}
	return b.String()
}

// differReply compares answers. A lease may tell of more claims than it must.
func differReply(c table.Command, got, want table.Reply, m *model.Model) string {
	if c.Op == table.Claim {
		if d := differLists("answer", brief(got.Status), brief(want.Status)); d != "" {
			return d
		}
	}
	if got.Lease.Key != want.Lease.Key || got.Lease.TTL != want.Lease.TTL ||
		got.Lease.Number != want.Lease.Number || got.Lease.EndsAt != want.Lease.EndsAt {
		return fmt.Sprintf("lease of the table: %v, of the model: %v", got.Lease, want.Lease)
	}
	told, must := brief(got.Lease.Claims...), brief(want.Lease.Claims...)
	for _, s := range must {
		if !has(told, s) {
			return fmt.Sprintf("the lease should tell\n%sand tells\n%s", text([]lockkeeper.Status{s}), text(told))
		}
	}
	if len(told) == len(must) {
		return ""
	}
	live := brief(m.List()...)
	for _, s := range told {
		if !has(must, s) && !has(live, s) {
			return fmt.Sprintf("the lease tells\n%sof\n%s", text([]lockkeeper.Status{s}), text(live))
		}
	}
	return ""
}

func has(all []lockkeeper.Status, s lockkeeper.Status) bool {
	return slices.ContainsFunc(all, func(x lockkeeper.Status) bool { return x.Ref == s.Ref && reflect.DeepEqual(x, s) })
}

// brief is plain without what only a list tells.
func brief(all ...lockkeeper.Status) []lockkeeper.Status {
	all = plain(all)
	for i := range all {
		all[i].Position, all[i].ETA, all[i].Waits = 0, 0, nil
	}
	return all
}
