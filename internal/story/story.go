// Package story writes the commands of package table as text that people read,
// reads them back, and plays them. A story has one command a line:
//
//	attach alice ttl=30s named=1,2
//	renew alice
//	claim alice 1 exclusive db/a wait=try priority=5
//	claim bob 7 permits router/snmp 2/3, shared site wait=10s steal-after=5s
//	    max-hold=1m grace=5s expected=2h inside=alice.1 rev=1 as=bob note="the nightly run"
//	freeze ops 1 db for=1h note="disk swap"
//	release alice 1
//	lapsed alice 1/stolen/5s
//	leave alice
//	gone alice
//	revoke ops alice.1 force note="stuck"
//	thaw ops db
//	restart
//	pass 10s
//
// Spaces separate words. A word with spaces, commas, equal signs or quotes is quoted as in Go. A
// claim waits without limit unless it says wait=10s or wait=try; soft, quiet=, steal (only ask) and
// steal-after= are as in lockkeeper.Want. Durations are written as in Go, with d and w for days and
// weeks, or forever.
//
// A line may begin with "at 12s", the engine's time; otherwise it happens at
// the time of the line before. "pass 10s" lets 10 s go by. The key of a command has
// the latest epoch of its session, and an attach follows it, unless the line says
// epoch=3, or for an attach that knows of none epoch=none. With lowest-open=7 a key
// states that no claim with a lower id is begun any more, and with acked=3 that the
// client received the third lease of its session. A lapse is a claim's id, its reason and the end by
// which its client counted; attach bob lapsed=1/expired/30s states one.
package story

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Stepper is what a story is played on: a table, or the model of one.
type Stepper interface {
	Step(*table.Command) (table.Reply, error)
	Events() []table.Event
}

// Runner plays a story, line by line. It is not safe for concurrent use.
type Runner struct {
	stepper Stepper
	list    func() []lockkeeper.Status
	now     time.Duration
	epochs  map[string]uint64
}

// New is a Runner that plays on s. Whatever list returns is printed after each
// command, as Print does.
func New(s Stepper, list func() []lockkeeper.Status) *Runner {
	return &Runner{stepper: s, list: list, epochs: make(map[string]uint64)}
}

// Do plays one line and returns what happened: the time and the answer, the
// events, the table. A line that can't be read says why; nothing happens then.
// An empty line and a comment, which begins with #, do nothing.
func (r *Runner) Do(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasPrefix(text, "#") {
		return ""
	}
	l, err := parseLine(text)
	if err != nil {
		return fmt.Sprintf("can't read this line: %v\n", err)
	}
	return r.step(r.command(l))
}

// Play does a command that is not text, as Do does a line. Its key is completed
// and its time taken as it is.
func (r *Runner) Play(c table.Command) string {
	return r.step(r.Complete(c))
}

// NoEpoch in table.Command.Session says that the attach knows of no epoch: 0 there
// stands for the latest one, which is filled in.
const NoEpoch = math.MaxUint64

// Complete fills in the latest epoch of the session where the key has none, or the
// attach.
func (r *Runner) Complete(c table.Command) table.Command {
	if c.Key.Epoch == 0 {
		c.Key.Epoch = r.epochs[c.Key.Session]
	}
	switch {
	case c.Op != table.Attach:
	case c.Session.Epoch == 0:
		c.Session.Epoch = r.epochs[c.Session.ID]
	case c.Session.Epoch == NoEpoch:
		c.Session.Epoch = 0
	}
	return c
}

// command is the line at its time.
func (r *Runner) command(l line) table.Command {
	if !l.timed {
		l.command.At = r.now
	}
	if l.passed > 0 {
		l.command.At += l.passed
	}
	return r.Complete(l.command)
}

// Learn notes the answer to a command that was played elsewhere, so that Complete
// knows the epochs.
func (r *Runner) Learn(c table.Command, reply table.Reply, err error) {
	if c.Op == table.Attach && err == nil {
		r.epochs[c.Session.ID] = reply.Lease.Key.Epoch
	}
}

func (r *Runner) step(c table.Command) string {
	r.now = max(r.now, c.At)
	reply, err := r.stepper.Step(&c)
	r.Learn(c, reply, err)
	var b strings.Builder
	fmt.Fprintf(&b, "at %s: %s\n", Duration(r.now), answer(c, reply, err))
	b.WriteString(PrintEvents(r.stepper.Events()))
	b.WriteString(Print(r.list()))
	return b.String()
}
