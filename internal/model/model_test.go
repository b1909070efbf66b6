package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
)

// play plays a script on a fresh model. Its lines are commands of a story, each
// with the answer that is expected after "=>" if that matters; "has …" names text
// that the table then has, "happened …" an event of the last command, and "is …" the
// claims that are held and that wait.
func play(t *testing.T, script string) {
	t.Helper()
	m := model.New()
	r := story.New(m, m.List)
	var out string
	for n, text := range strings.Split(script, "\n") {
		text = strings.TrimSpace(text)
		check := func(ok bool) {
			t.Helper()
			if !ok {
				t.Errorf("line %d: %s\n%s", n, text, out)
			}
		}
		if want, ok := strings.CutPrefix(text, "has "); ok {
			check(strings.Contains(strings.Join(strings.Fields(story.Print(m.List())), " "), want))
			continue
		}
		if want, ok := strings.CutPrefix(text, "happened "); ok {
			check(strings.Contains(story.PrintEvents(m.Events()), want+"\n"))
			continue
		}
		if want, ok := strings.CutPrefix(text, "is "); ok {
			check(strings.TrimSpace(want) == strings.TrimSpace(summary(m)))
			continue
		}
		command, want, _ := strings.Cut(text, " => ")
		out = r.Do(command)
		first, _, _ := strings.Cut(out, "\n")
		check(!strings.HasPrefix(out, "can't"))
		check(strings.HasSuffix(first, want))
	}
}

// summary is the claims that are held, a bar, and those that wait.
func summary(m *model.Model) string {
	var held, waiting []string
	for _, s := range m.List() {
		switch s.State.String() {
		case "held":
			held = append(held, s.Ref.String())
		case "waiting":
			waiting = append(waiting, s.Ref.String())
		}
	}
	return strings.Join(held, " ") + " | " + strings.Join(waiting, " ")
}

// T0.1: the limit is MaxPer times the caller's own number of resources.
func TestPermitsOneCaller(t *testing.T) {
	play(t, `
		attach a
		claim a 1 permits db 1/3 wait=try => held
		has a.1 permits db 1/3 fence 1, 1 in use, slot 1
		claim a 2 permits db 1/3 wait=try
		claim a 3 permits db 1/3 wait=try
		has a.3 permits db 1/3 fence 3, 3 in use, slot 3
		claim a 4 permits db 1/3 wait=try => ended, timed out
		claim a 5 permits db 1/6 wait=try => held
		has a.5 permits db 1/6 fence 4, 4 in use, slot 4
		claim a 6 permits db 1/3 wait=try => ended, timed out
		release a 1 => ok
		claim a 7 permits db 1/3 wait=try => ended, timed out
		release a 2 => ok
		claim a 8 permits db 1/3 wait=try => held
		has a.8 permits db 1/3 fence 5, 3 in use, slot 1
		claim a 9 permits db 1/3 wait=try => ended, timed out`)
}

// T0.2: five callers with different views.
func TestPermitsInterleaved(t *testing.T) {
	play(t, `
		attach a
		claim a 1 permits k 1/3 wait=try => held
		claim a 2 permits k 1/3 wait=try => held
		claim a 3 permits k 1/6 wait=try => held
		has a.3 permits k 1/6 fence 3, 3 in use, slot 3
		claim a 4 permits k 1/3 wait=try => ended, timed out
		claim a 5 permits k 1/6 wait=try => held
		has a.5 permits k 1/6 fence 4, 4 in use, slot 4
		release a 1
		release a 2
		release a 3
		release a 5
		is  | 
		claim a 6 permits k 1/3 wait=try => held
		has 1 in use, slot 1`)
}

// T0.3: fill and drain, MaxPer 3 and 3 resources.
func TestPermitsFillAndDrain(t *testing.T) {
	var b strings.Builder
	b.WriteString("attach a\n")
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&b, "claim a %d permits k 1/9 wait=try => held\nhas %d in use, slot %d\n", i, i, i)
	}
	b.WriteString("claim a 10 permits k 1/9 wait=try => ended, timed out\n")
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&b, "release a %d => ok\n", i)
	}
	b.WriteString("release a 11 => error, not held\nis  | ")
	play(t, b.String())
}

// T0.5: a larger view passes where a smaller one is full.
func TestPermitsUpsize(t *testing.T) {
	play(t, `
		attach a
		claim a 1 permits k 1/5
		claim a 2 permits k 1/5
		claim a 3 permits k 1/5
		claim a 4 permits k 1/5
		claim a 5 permits k 1/5
		claim a 6 permits k 1/10 => held
		has 6 in use, slot 6
		release a 1
		claim a 7 permits k 1/5 wait=try => ended, timed out
		claim a 8 permits k 1/10 wait=try => held
		has a.8 permits k 1/10 fence 7, 6 in use, slot 1`)
}

// R7: a claim that waits for its own smaller limit blocks no claim with a larger one.
func TestOwnLimitHoldsBackNobody(t *testing.T) {
	play(t, `
		attach a
		claim a 1 permits k 2/2
		claim a 2 permits k 1/2 => waiting
		has a.2 permits k 1/2 place 1, own limit
		claim a 3 permits k 1/3 => held
		claim a 4 permits k 1/2 => waiting
		has a.4 permits k 1/2 place 2, own limit
		release a 1
		is a.3 a.2 | a.4
		has a.4 permits k 1/2 place 1, own limit`)
}

// T3.1: the author's scenario of trees.
func TestTree(t *testing.T) {
	play(t, `
		attach s
		claim s 1 exclusive mydatabase/mytest => held
		claim s 2 exclusive mydatabase/yourtest => held
		claim s 3 exclusive mydatabase => waiting
		claim s 4 exclusive mydatabase/third => waiting
		has s.3 exclusive mydatabase place 1, held by
		has s.4 exclusive mydatabase/third place 2, behind
		release s 1
		release s 2
		is s.3 | s.4
		release s 3
		is s.4 | `)
}

// T1.19: hard writers hold back later readers; a bounded wait leaves no trace.
func TestReadersAndWriters(t *testing.T) {
	play(t, `
		attach s
		claim s 1 shared db
		claim s 2 shared db
		claim s 3 shared db
		claim s 4 exclusive db => waiting
		claim s 5 shared db => waiting
		release s 1
		release s 2
		release s 3
		is s.4 | s.5
		release s 4
		is s.5 | 
		claim s 6 exclusive db wait=3s
		claim s 7 shared db
		is s.5 | s.6 s.7
		pass 3s
		happened 3s: ended s.6, timed out
		is s.5 s.7 | `)
}

// R9: soft writers are ahead of nobody, timed ones wait for quiet.
func TestSoftWriters(t *testing.T) {
	play(t, `
		attach s
		claim s 1 shared db
		claim s 2 exclusive db soft quiet=5s
		claim s 3 shared db => held
		is s.1 s.3 | s.2
		release s 1
		pass 2s
		release s 3
		has s.2 exclusive db place 1, quiet period
		pass 3s
		claim s 4 shared db wait=try => held
		release s 4
		pass 4s
		is  | s.2
		pass 1s
		happened 10s: granted s.2, fence 4`)
}

// R10: ask and take, and a higher thief goes first.
func TestSteal(t *testing.T) {
	play(t, `
		attach low ttl=30s
		attach mid
		attach high
		claim low 1 exclusive db
		claim mid 1 exclusive db priority=1 steal-after=10s as=mid
		has low.1 exclusive db fence 1, asked to yield within 10s by mid.1
		has mid.1 exclusive db priority 1, place 1, about 10s to go, held by, asked to yield
		pass 5s
		claim high 1 exclusive db priority=2 steal => waiting
		has low.1 exclusive db fence 1, asked to yield by high.1
		has mid.1 exclusive db priority 1, place 2, held by, behind
		release high 1
		has low.1 exclusive db fence 1, asked to yield within 10s by mid.1
		pass 10s
		happened 15s: ended low.1, stolen
		has mid.1 exclusive db priority 1, fence 2, unconfirmed`)
	play(t, `
		attach low
		attach mid
		claim low 1 exclusive db
		claim mid 1 exclusive db priority=1 steal
		release low 1
		happened 0s: ended low.1, yielded
		happened 0s: granted mid.1, fence 2`)
}

// R10: among permits the fewest units, the lowest priority, the youngest.
func TestStealPermits(t *testing.T) {
	play(t, `
		attach s
		attach thief
		claim s 1 permits k 2/8
		claim s 2 permits k 3/8 priority=1
		claim s 3 permits k 3/8
		claim thief 1 permits k 2/8 priority=5 steal
		has s.1 permits k 2/8 fence 1, 2 in use, asked to yield by thief.1
		release thief 1
		claim thief 2 permits k 3/8 priority=5 steal
		has s.3 permits k 3/8 fence 3, 8 in use, asked to yield by thief.2
		release thief 2
		claim thief 3 permits k 5/8 priority=5 steal
		has s.1 permits k 2/8 fence 1, 2 in use, asked to yield by thief.3
		has s.3 permits k 3/8 fence 3, 8 in use, asked to yield by thief.3`)
}

// R11, R12: leases end claims; a longest hold asks first; who was told leaves no ghost.
func TestLeases(t *testing.T) {
	play(t, `
		attach a ttl=10s
		attach b
		claim a 1 exclusive db
		claim b 1 exclusive db
		pass 5s
		renew a
		pass 9s
		is a.1 | b.1
		pass 1s
		happened 15s: ended a.1, expired
		is b.1 | `)
	play(t, `
		attach a
		attach b
		claim a 1 exclusive db max-hold=10s grace=5s
		claim b 1 exclusive db
		pass 10s
		happened 10s: ask changed a.1
		has a.1 exclusive db fence 1, asked to yield within 5s, overdue
		pass 5s
		happened 15s: ended a.1, overdue
		has b.1 exclusive db fence 2`)
}

// R14: conversions go first, keep the hold, and come back as they were.
func TestConversion(t *testing.T) {
	play(t, `
		attach s
		claim s 1 shared db
		claim s 2 shared db
		claim s 3 exclusive db
		claim s 1 exclusive db rev=1 wait=5s => held, converting
		pass 5s
		happened 5s: undone s.1, timed out
		has s.1 shared db fence 1, conversion undone: timed out
		claim s 1 exclusive db rev=2 => held, converting
		release s 2
		is s.1 | s.3
		has s.1 exclusive db fence 3
		claim s 1 shared db rev=3 => held
		happened 5s: downgraded s.1
		has s.1 shared db fence 3
		claim s 1 shared db rev=3 => held
		claim s 1 shared db rev=3 priority=1 => error, invalid request`)
}

// R15: the youngest of a knot is refused, a conversion undone.
func TestDeadlock(t *testing.T) {
	play(t, `
		attach s
		claim s 1 exclusive a
		claim s 2 exclusive b
		claim s 3 exclusive b inside=s.1 => waiting
		claim s 4 exclusive a inside=s.2 => ended, deadlock
		is s.1 s.2 | s.3`)
	play(t, `
		attach s
		claim s 1 shared a
		claim s 2 shared a
		claim s 1 exclusive a rev=1 => held, converting
		claim s 2 exclusive a rev=1 => held
		happened 0s: undone s.2, deadlock
		has s.1 shared a fence 1
		release s 2
		has s.1 exclusive a fence 3`)
	play(t, `
		attach s
		claim s 1 exclusive a
		claim s 2 exclusive a/b inside=s.1 => ended, deadlock`)
	play(t, `
		attach s
		claim s 1 exclusive a
		claim s 2 exclusive b
		freeze s 9 b for=1h
		claim s 3 exclusive b inside=s.1 => waiting
		claim s 4 exclusive a inside=s.2 => waiting
		thaw s b
		happened 0s: ended s.4, deadlock`)
}

// R15: claims form a tree; a claim that waits keeps back all that it is inside of,
// and nothing else.
func TestInside(t *testing.T) {
	play(t, `
		attach s
		claim s 1 exclusive site
		claim s 2 exclusive db inside=s.1
		claim s 3 exclusive db inside=s.1 => waiting
		release s 2
		is s.1 s.3 |`)
	play(t, `
		attach s
		claim s 1 exclusive site
		claim s 2 exclusive db inside=s.1
		claim s 3 exclusive site inside=s.2 => ended, deadlock
		release s 2
		claim s 4 exclusive site inside=s.2 => waiting`)
	play(t, `
		attach s
		attach far
		claim s 1 exclusive a
		claim s 2 exclusive b inside=s.1
		claim far 1 exclusive c
		claim s 3 exclusive c inside=s.2 => waiting
		claim far 2 exclusive a inside=far.1 => ended, deadlock
		claim far 3 exclusive a => waiting
		is s.1 s.2 far.1 | s.3 far.3`)
	play(t, `
		attach s
		claim s 1 exclusive a inside=s.2
		claim s 2 exclusive b inside=s.1
		claim s 3 exclusive a inside=s.2 => ended, deadlock`)
}

// R16: the same id is the same claim, also after its end.
func TestOnce(t *testing.T) {
	play(t, `
		attach s ttl=10s
		claim s 1 exclusive db => held
		claim s 1 exclusive db => held
		claim s 1 shared db => error, invalid request
		release s 1 => ok
		release s 1 => ok
		claim s 1 exclusive db => ended, released
		release s 2 => error, not held
		renew s
		pass 9s
		claim s 1 exclusive db => ended, released
		renew s
		pass 1s
		release s 1 => error, not held`)
}

// R8: a wait that can't end with a grant ends at once.
func TestHopelessWait(t *testing.T) {
	play(t, `
		attach s
		claim s 1 exclusive db expected=1m
		claim s 2 exclusive db wait=59s => ended, timed out
		claim s 3 exclusive db wait=1m => ended, timed out
		claim s 4 exclusive db wait=61s => waiting
		freeze s 5 db for=61s
		happened 0s: ended s.4, timed out`)
}

// R18: an operator asks, then takes; a freeze is not felt by holders.
func TestPeople(t *testing.T) {
	play(t, `
		attach s ttl=20s
		attach ops
		claim s 1 exclusive db
		revoke ops s.1 note=why
		has s.1 exclusive db fence 1, asked to yield within 20s by an operator
		pass 10s
		renew s
		revoke ops s.1
		pass 10s
		happened 20s: ended s.1, revoked
		claim s 2 shared db/a => held
		freeze ops 1 db for=1m
		claim s 3 shared db/b => waiting
		has s.3 shared db/b place 1, frozen
		claim s 4 permits db/a 1/1 => waiting
		has s.4 permits db/a 1/1 place 1, held by, frozen
		thaw ops db
		is s.2 s.3 | s.4
		thaw ops db => error, not held`)
}

// R19: after a restart sessions resume, and only then their claims go on.
func TestRestart(t *testing.T) {
	play(t, `
		attach a ttl=10s
		attach b ttl=10s
		claim a 1 exclusive db
		claim a 2 exclusive x
		claim b 1 exclusive db
		pass 9s
		restart
		pass 5s
		renew a => error, session is not attached
		release a 1 => error, session is not attached
		attach a ttl=10s named=2
		happened 14s: ended a.1, superseded
		is a.2 | b.1
		has b.1 exclusive db place 1, resuming
		renew a epoch=1 => error, session is not attached
		attach b ttl=10s named=1
		happened 14s: granted b.1, fence 3`)
}

// R12: a hold that is taken before its holder can know leaves a ghost.
func TestGhosts(t *testing.T) {
	play(t, `
		attach a ttl=30s
		attach ops
		claim a 1 exclusive db
		revoke ops a.1 force
		claim ops 1 exclusive db
		has ops.1 exclusive db fence 2, unconfirmed
		release ops 1
		pass 29s
		claim ops 2 permits db/x 1/1
		has ops.2 permits db/x 1/1 fence 3, 1 in use, slot 1, unconfirmed
		release a 1
		claim ops 3 shared db/y
		has ops.3 shared db/y fence 4`)
	m := model.New()
	r := story.New(m, m.List)
	for _, text := range []string{"attach a ttl=30s", "attach ops", "claim a 1 exclusive db",
		"revoke ops a.1", "renew a", "at 20s renew a", "pass 10s", "claim ops 1 exclusive db"} {
		r.Do(text)
	}
	if slices.ContainsFunc(m.List(), func(s lockkeeper.Status) bool { return s.Unconfirmed }) {
		t.Errorf("told of its end by a renewal, it should leave no ghost\n%s", story.Print(m.List()))
	}
}
