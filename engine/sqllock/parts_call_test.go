package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// prepare makes of a command the call of an engine; nil if there is none.
func (w *world) prepare(c table.Command) *played {
	if c.Op == table.Attach && c.Session.TTL == 0 {
		c.Session.TTL = 20 * time.Second // there is no session without end
	}
	p := &played{command: c, e: w.engineOf(sessionOf(c))}
	ctx := context.Background()
	key := c.Key
	key.Epoch = w.epochs.second(key.Epoch)
	switch c.Op {
	case table.Attach:
		s := c.Session
		s.Epoch = w.epochs.second(s.Epoch)
		p.refused = s.Check(false) != nil
		p.e = w.engines[w.IntN(2)]
		p.call = func() (err error) { p.lease, err = p.e.Attach(ctx, s, nil); return err }
	case table.Renew:
		p.renews = true
		p.call = func() (err error) { p.lease, err = p.e.Renew(ctx, key); return err }
	case table.Claim:
		p.refused = c.Want.Check() != nil
		if w.forgot(lockkeeper.Ref{Session: key.Session, ID: c.Want.ID}) {
			return nil
		}
		p.call = func() (err error) { p.status, err = p.e.Claim(ctx, key, c.Want); return err }
	case table.End:
		ref := lockkeeper.Ref{Session: key.Session, ID: cmp.Or(c.Ending.ID, c.Ending.Lapse.ID)}
		if w.forgot(ref) || w.forgot(c.Ending.Ref) {
			return nil
		}
		p.call = func() error { return p.e.End(ctx, key, c.Ending) }
	default:
		return nil
	}
	return p
}

// forgot reports whether the whole table has forgotten the end of a claim of which
// there is a row still: its session knows of it, and has said in an earlier epoch that it
// begins no claim with that id. Nobody makes it again but these sequences.
func (w *world) forgot(ref lockkeeper.Ref) bool {
	row, there := w.rows.tables.claims[ref]
	if !there || row.ClaimRecord.State != lockkeeper.Ended || !row.Acked || row.UnackedUntil > w.rows.now {
		return false
	}
	_, known := w.whole.Status(ref)
	return !known
}

// pairs are numbers of one kind, those of the whole table with those of the rows. Both
// rise together, unless they are loose.
type pairs struct {
	all   [][2]uint64
	loose bool
}

// second is the number of the rows that stands for a number of the whole table.
func (p *pairs) second(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	for _, pair := range p.all {
		if pair[0] == n {
			return pair[1]
		}
	}
	return 1<<40 + n
}

// same reports whether two numbers stand for each other. Those that have not been seen
// do from now on, unless that would be out of order.
func (p *pairs) same(a, b uint64) bool {
	if a == 0 || b == 0 {
		return a == b
	}
	i := 0
	for i < len(p.all) && p.all[i][0] < a {
		i++
	}
	if i < len(p.all) && p.all[i][0] == a {
		return p.all[i][1] == b
	}
	if !p.loose && (i > 0 && p.all[i-1][1] >= b || i < len(p.all) && p.all[i][1] <= b) {
		return false
	}
	p.all = slices.Insert(p.all, i, [2]uint64{a, b})
	return true
}

// differAnswer compares the answers to one command.
func (w *world) differAnswer(p *played, reply table.Reply, err error) string {
	var whole, parts *lockkeeper.Error
	errors.As(err, &whole)
	errors.As(p.err, &parts)
	switch {
	case (err == nil) != (p.err == nil):
		return fmt.Sprintf("the whole answers %v, and the parts %v", err, p.err)
	case err != nil && (whole.Err != parts.Err || whole.Reason != parts.Reason ||
		!w.epochs.same(whole.Epoch, parts.Epoch)):
		return fmt.Sprintf("the whole answers %v (%d), and the parts %v (%d)", err, whole.Epoch, p.err, parts.Epoch)
	case err != nil:
		return ""
	}
	if p.command.Op == table.Claim && w.short() && reply.Status.Reason == lockkeeper.Deadlock &&
		p.status.State != lockkeeper.Ended {
		return "" // a claim that was not read may be part of the cycle: the next check finds it
	}
	if p.command.Op == table.Claim {
		return w.differStatus("the answer", reply.Status, p.status)
	}
	a, b := reply.Lease, p.lease
	if p.command.Op == table.Renew { // a renewal tells no more than the TTL (see transaction.renew)
		a.TTL = min(a.TTL, w.rows.tables.sessions[a.Key.Session].TTL)
	}
	b.Claims = slices.DeleteFunc(slices.Clone(b.Claims), func(st lockkeeper.Status) bool { return w.forgot(st.Ref) })
	if p.command.Op == table.Attach {
		w.home[a.Key.Session] = p.e
	}
	if a.Key.Session != b.Key.Session || a.TTL != b.TTL || a.Number != b.Number ||
		!w.epochs.same(a.Key.Epoch, b.Key.Epoch) || len(a.Claims) != len(b.Claims) {
		return fmt.Sprintf("the whole gives the lease\n%+v\nand the parts\n%+v", a, b)
	}
	for _, all := range [][]lockkeeper.Status{a.Claims, b.Claims} { // of those that ended at once any may come first
		slices.SortFunc(all, func(a, b lockkeeper.Status) int { return compareRefs(a.Ref, b.Ref) })
	}
	for i := range a.Claims {
		if diff := w.differStatus("the lease", a.Claims[i], b.Claims[i]); diff != "" {
			return diff
		}
	}
	return ""
}

// differStatus compares two statuses of a claim.
func (w *world) differStatus(what string, a, b lockkeeper.Status) string {
	whole, parts := a, b
	numbers := w.fences.same(a.Fence, b.Fence) && w.tickets.same(a.Ticket, b.Ticket)
	for _, st := range []*lockkeeper.Status{&a, &b} {
		st.Fence, st.Ticket, st.Change, st.Position, st.ETA = 0, 0, 0, 0, 0
		st.Blockers = slices.SortedFunc(slices.Values(st.Blockers), func(a, b lockkeeper.Blocker) int {
			return cmp.Or(compareRefs(a.Ref, b.Ref), cmp.Compare(a.Path, b.Path))
		})
	}
	if n := len(a.Blockers); w.short() || b.State == lockkeeper.Ended && len(b.Blockers) == 0 ||
		n == lockkeeper.MaxBlockers && n == len(b.Blockers) {
		// beyond a prefix the blockers are not known; the reason of an end is stated once; and of many
		// blockers some are stated
		a.Blockers, b.Blockers = nil, nil
	}
	if w.short() {
		a.Asked, b.Asked = nil, nil // the asking claim may be beyond the prefix: the next check finds it
	}
	if a.Reason == lockkeeper.Deadlock {
		a.Text, b.Text = "", "" // how often it goes round in a circle depends on how many claims there are
	}
	if numbers && reflect.DeepEqual(a, b) {
		return ""
	}
	if as, bs := fmt.Sprintf("%+v", plainStatus(a)), fmt.Sprintf("%+v", plainStatus(b)); as != bs || !numbers {
		return fmt.Sprintf("%s of the whole:\n%+v\nof the parts:\n%+v", what, plainStatus(whole), plainStatus(parts))
	}
	return ""
}

// plainStatus is a status of which everything is printed.
func plainStatus(st lockkeeper.Status) any {
	asked := lockkeeper.Asked{}
	if st.Asked != nil {
		asked, st.Asked = *st.Asked, nil
	}
	type plain lockkeeper.Status
	return struct {
		plain
		asks lockkeeper.Asked
	}{plain(st), asked}
}
