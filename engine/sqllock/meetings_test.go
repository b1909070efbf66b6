package sqllock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// TestMeetings goes through every order of the statements of commands that come at once where it
// matters, or some of them where there are very many. As in TestInterleavings each outcome must be
// that of the whole table for some order of the commands. A line "look" is a transaction that
// checks the waiting claims.
func TestMeetings(t *testing.T) {
	for _, m := range []struct {
		name, before, atOnce string
		many                 bool // orders
	}{
		{name: "a renewal and a thief", before: `
attach a ttl=20s
attach b
claim a 1 exclusive db`, atOnce: `
at 5s renew a acked=1
at 5s claim b 1 exclusive db priority=1 steal-after=3s`},
		{name: "a renewal and the moment of the take", before: `
attach a ttl=20s
attach b
claim a 1 exclusive db
claim b 1 exclusive db priority=1 steal-after=5s`, atOnce: `
at 5s renew a
at 5s look`},
		{name: "a renewal and the end of the thief's session", before: `
attach a ttl=20s
attach b ttl=5s
claim a 1 exclusive db
claim b 1 exclusive db priority=1 steal-after=5s
renew a`, atOnce: `
at 5s renew a acked=1
at 5s look`},
		{name: "a renewal and the end of the session", before: `
attach a ttl=5s
attach b
claim a 1 exclusive db
claim b 1 exclusive db`, atOnce: `
at 4s renew a
at 4s release a 1
at 4s look`, many: true},
		{name: "a revoked hold, its session attached again, and who comes next", before: `
attach a ttl=20s
attach b
attach c
claim a 1 exclusive db
revoke c a.1 force`, atOnce: `
at 1s attach a
at 1s claim b 1 exclusive db`},
		{name: "two waiters for each other", before: `
attach a
attach b
claim a 1 exclusive t
claim b 1 exclusive w`, atOnce: `
claim a 2 exclusive w inside=a.1
claim b 2 exclusive t inside=b.1`},
		{name: "two waiters for each other, deep inside", before: `
attach a
attach b
claim a 1 exclusive t
claim a 2 exclusive p inside=a.1
claim b 1 exclusive w
claim b 2 exclusive q inside=b.1`, atOnce: `
claim a 3 exclusive w inside=a.2
claim b 3 exclusive t inside=b.2`, many: true},
		{name: "two upgrades", before: `
attach a
attach b
claim a 1 shared t
claim b 1 shared t`, atOnce: `
claim a 1 exclusive t rev=1
claim b 1 exclusive t rev=1`},
		{name: "a release and who comes", before: `
attach a
attach b
attach c
claim a 1 exclusive t, exclusive w`, atOnce: `
release a 1
claim b 1 exclusive t
claim c 1 permits w/x 1/1`, many: true},
		{name: "a thief of two, and who comes where one of them is robbed", before: `
attach a ttl=20s
attach b
attach c
claim a 1 exclusive t, exclusive w
claim b 1 shared w`, atOnce: `
claim c 1 exclusive t priority=1 steal-after=0s
claim b 2 permits w/x 1/1`, many: true},
		{name: "two thieves of one hold in two places", before: `
attach a ttl=20s
attach b
attach c
claim a 1 exclusive t, exclusive w`, atOnce: `
claim b 1 exclusive t priority=1 steal-after=5s
claim c 1 exclusive w priority=2 steal-after=9s
renew a`, many: true},
		{name: "a freeze and who comes", before: `
attach a
attach b
claim a 1 shared t/u`, atOnce: `
freeze b 1 t for=5s
claim a 2 exclusive t/u/v`},
		{name: "a session that leaves and the claim that asks it", before: `
attach a ttl=20s
attach b
claim a 1 exclusive t
claim a 2 exclusive w`, atOnce: `
leave a
claim b 1 exclusive w priority=1 steal`},
	} {
		t.Run(m.name, func(t *testing.T) {
			try := everyOrder
			if m.many {
				try = someOrders
			}
			orders, err := try(func(choose func(int) int) error {
				w := newWorld(1, variant{bounds: usual})
				if diff := w.meeting(lines(m.before), lines(m.atOnce), choose); diff != "" {
					return fmt.Errorf("%s", diff)
				}
				return nil
			})
			if err != nil {
				t.Errorf("in order %d: %v", orders, err)
			}
			t.Logf("%d orders", orders)
		})
	}
}

// meeting plays some commands one after the other, and some at once.
func (w *world) meeting(before, atOnce []table.Command, choose func(int) int) string {
	for _, c := range before {
		if diff := w.play([]table.Command{c}); diff != "" {
			return diff
		}
	}
	w.rows.now = max(w.rows.now, atOnce[0].At+beginning)
	var calls []*played
	for _, c := range atOnce {
		if c.At = w.rows.now; c.Op == table.Pass {
			calls = append(calls, w.lookCall())
			continue
		}
		calls = append(calls, w.prepare(w.runner.Complete(c)))
	}
	return w.raceOf(calls, []string{"latch", "sessions", "claims", "hold", "commit"}, choose)
}

// lines reads commands as a story has them; "look" is one that lets no time pass.
func lines(text string) []table.Command {
	var k catcher
	r := story.New(&k, func() []lockkeeper.Status { return nil })
	for line := range strings.Lines(strings.ReplaceAll(text, "look", "pass 0s")) {
		if told := r.Do(line); strings.HasPrefix(told, "can't") {
			panic(line + told)
		}
	}
	return k.all
}

// catcher keeps the commands that it is given.
type catcher struct{ all []table.Command }

func (k *catcher) Step(c *table.Command) (table.Reply, error) {
	k.all = append(k.all, *c)
	return table.Reply{}, nil
}

func (k *catcher) Events() []table.Event { return nil }
