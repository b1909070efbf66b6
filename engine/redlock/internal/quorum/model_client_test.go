package quorum

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A client stands for lockkeeper.Client: it renews its session, and stops using holds one margin
// before their deadlines (R12).
//
//	deadline = sent + TTL of the lease - margin        end of a hold = sent + Asked.Left - margin
type client struct {
	session  string
	key      lockkeeper.Key
	open     bool
	sent     time.Duration // of the latest lease
	deadline time.Duration
	renewAt  time.Duration
	renewing bool
	next     uint64 // id of the next claim
	claims   []*wish
	calls    []clientCall
	epoch    uint64 // the highest epoch heard of
	retryAt  time.Duration
	attaches int
	dropped  []CallID // calls abandoned in the present step
	named    []uint64 // by the latest attachesAgain
	returns  bool     // the Attach on its way is by attachesAgain
}

// A wish is a claim of a client.
type wish struct {
	id        uint64
	want      lockkeeper.Want
	change    uint64
	held      bool
	over      bool
	cancelled bool // its end was asked for
	fence     uint64
	end       time.Duration // by an ask; never
	requested int           // step
	asked     bool
}

type clientCall struct {
	id    CallID
	kind  Kind
	claim uint64
	sent  time.Duration
}

const callBound = 5 * time.Second

func (c *client) begin(kind Kind, claim uint64, id CallID, sent time.Duration) {
	c.calls = append(c.calls, clientCall{id, kind, claim, sent})
}

func (w *world) clientStarts(p *process) {
	now := p.time(w)
	c := &p.client
	c.open, c.renewing, c.returns = false, true, false
	c.attaches++
	c.retryAt = never
	w.tell("p%d attaches %s after epoch %d", p.index, c.session, c.epoch)
	c.begin(Attach, 0, p.party.Attach(now, lockkeeper.Session{ID: c.session, TTL: w.scope.ttl, Epoch: c.epoch}), now)
}

func (w *world) renew(p *process) {
	now := p.time(w)
	c := &p.client
	c.renewing = true
	c.begin(Renew, 0, p.party.Renew(now, c.key), now)
}

// claim makes a new claim.
func (w *world) claim(p *process, want lockkeeper.Want, paths ...string) {
	now := p.time(w)
	c := &p.client
	want.ID = c.next
	c.next++
	for _, path := range paths {
		want.Targets = append(want.Targets, lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive})
	}
	x := &wish{id: want.ID, want: want, end: never, requested: w.steps}
	c.claims = append(c.claims, x)
	w.tell("p%d claims %d: %v priority %d wait %s %s after %s", p.index, want.ID, paths, want.Priority, want.Wait,
		want.Steal, want.After)
	c.begin(Claim, want.ID, p.party.Claim(now, c.key, want), now)
	w.flush(p)
}

// end releases a hold or cancels a wait.
func (w *world) end(p *process, x *wish) {
	now := p.time(w)
	w.tell("p%d ends %d, held: %t", p.index, x.id, x.held)
	x.cancelled, x.held = true, false
	p.client.begin(End, x.id, p.party.End(now, p.client.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: x.id}), now)
	w.flush(p)
}

func (c *client) wish(id uint64) *wish {
	at := slices.IndexFunc(c.claims, func(x *wish) bool { return x.id == id })
	if at < 0 {
		return nil
	}
	return c.claims[at]
}

// clientAnswer takes the answer of a call.
func (w *world) clientAnswer(p *process, a *Answer) {
	c := &p.client
	at := slices.IndexFunc(c.calls, func(k clientCall) bool { return k.id == a.Call })
	if at < 0 && slices.Contains(c.dropped, a.Call) {
		return // it was abandoned in this very step
	}
	if at < 0 {
		w.judge.fail("p%d: call %d was answered twice, or after Abandon", p.index, a.Call)
		return
	}
	k := c.calls[at]
	c.calls = slices.Delete(c.calls, at, at+1)
	w.tell("p%d: answer to %s %d: %v fence %d TTL %s", p.index, kindNames[k.kind], k.claim, a.Err, a.Status.Fence,
		a.Lease.TTL)
	now := p.time(w)
	var failed *lockkeeper.Error
	switch {
	case errors.As(a.Err, &failed) && errors.Is(a.Err, lockkeeper.ErrSession):
		c.epoch = max(c.epoch, failed.Epoch)
		w.loseSession(p, "refused")
	case a.Err != nil && (k.kind == Attach || k.kind == Renew):
		c.renewing = false
		c.retryAt = now + 500*time.Millisecond
	case k.kind == Attach || k.kind == Renew:
		w.takeLease(p, k, &a.Lease)
	case k.kind == Claim && a.Err == nil:
		w.takeStatus(p, &a.Status, k.sent)
	case k.kind == Claim:
		if x := c.wish(k.claim); x != nil {
			x.over = true
		}
	case k.kind == End && a.Err == nil:
		if x := c.wish(k.claim); x != nil {
			x.over = true
		}
	}
}

func (w *world) takeLease(p *process, k clientCall, l *lockkeeper.Lease) {
	c := &p.client
	now := p.time(w)
	c.renewing = false
	if k.kind == Attach {
		c.open, c.key = true, l.Key
	} else if !c.open {
		return
	}
	if k.sent >= c.sent {
		c.sent = k.sent
		c.deadline = k.sent + l.TTL - lockkeeper.Margin(l.TTL)
	}
	c.epoch = max(c.epoch, c.key.Epoch)
	c.key.Acked = max(c.key.Acked, l.Number)
	c.renewAt = max(now, k.sent+min(l.TTL, w.scope.ttl)/3)
	for i := range l.Claims {
		w.takeStatus(p, &l.Claims[i], k.sent)
	}
	if k.kind == Attach && c.returns {
		w.returned(p, l)
	}
}

// takeStatus takes what an answer or a notice says of a claim. Durations count from from.
func (w *world) takeStatus(p *process, st *lockkeeper.Status, from time.Duration) {
	x := p.client.wish(st.Ref.ID)
	if x == nil || st.Change < x.change || st.Ref.Session != p.client.session {
		return
	}
	x.change = st.Change
	switch st.State {
	case lockkeeper.Held:
		if x.cancelled || x.over {
			if x.fence == 0 && x.over {
				w.judge.fail("p%d: claim %d was granted after its end was answered", p.index, x.id)
			}
			return
		}
		if x.fence == 0 {
			x.fence = st.Fence
			x.held = true
			w.tell("p%d holds %d with fence %d, unconfirmed: %t", p.index, x.id, st.Fence, st.Unconfirmed)
			w.judge.granted(w, p, x, st)
		} else if w.scope.moving && x.fence < st.Fence { // a takeover may grant it again, without the servers of that fence
			w.judge.seen["fences that rose"]++
			x.fence = st.Fence
			w.judge.granted(w, p, x, st)
		} else if x.fence != st.Fence {
			w.judge.fail("p%d: the fence of claim %d changed from %d to %d", p.index, x.id, x.fence, st.Fence)
		}
		x.end, x.asked = never, st.Asked != nil
		if st.Asked != nil && st.Asked.Left != lockkeeper.Forever {
			x.end = from + st.Asked.Left - lockkeeper.Margin(st.Asked.Left)
		}
	case lockkeeper.Waiting:
		if x.held { // its new party finds no majority for it any more
			w.end(p, x)
		}
	case lockkeeper.Ended:
		if x.held {
			w.tell("p%d lost %d: %s", p.index, x.id, st.Reason)
		}
		x.held, x.over = false, true
	}
}

func (w *world) clientNotice(p *process, n *Notice) {
	if n.Session != p.client.session || !p.client.open || n.Epoch != p.client.key.Epoch {
		return
	}
	for i := range n.Statuses {
		w.takeStatus(p, &n.Statuses[i], p.time(w))
	}
	if len(n.Statuses) == 0 && !p.client.renewing {
		w.renew(p)
	}
}

// loseSession ends all claims, and attaches again.
func (w *world) loseSession(p *process, why string) {
	c := &p.client
	w.tell("p%d lost its session: %s", p.index, why)
	for _, x := range c.claims {
		x.held, x.over = false, true
	}
	w.abandonAll(p)
	w.clientStarts(p)
}

func (w *world) abandonAll(p *process) {
	for _, k := range p.client.calls {
		p.party.Abandon(p.time(w), k.id)
		p.client.dropped = append(p.client.dropped, k.id)
	}
	p.client.calls = nil
}

// clientDue returns when the client does something by itself.
func (w *world) clientDue(p *process) time.Duration {
	c := &p.client
	due := c.retryAt
	if c.open {
		due = min(due, c.deadline)
		if !c.renewing {
			due = min(due, c.renewAt)
		}
		for _, x := range c.claims {
			if x.held {
				due = min(due, x.end)
			}
		}
	}
	for _, k := range c.calls {
		due = min(due, k.sent+callBound)
	}
	return due
}

// clientTick does what is due.
func (w *world) clientTick(p *process) {
	c := &p.client
	now := p.time(w)
	for _, k := range slices.Clone(c.calls) {
		if now < k.sent+callBound {
			continue
		}
		p.party.Abandon(now, k.id)
		c.dropped = append(c.dropped, k.id)
		c.calls = slices.DeleteFunc(c.calls, func(o clientCall) bool { return o.id == k.id })
		switch k.kind {
		case Attach, Renew:
			c.renewing = false
			c.retryAt = now
		case Claim:
			if x := c.wish(k.claim); x != nil && !x.over && !x.cancelled {
				c.begin(Claim, x.id, p.party.Claim(now, c.key, x.want), now)
			}
		case End:
			c.begin(End, k.claim, p.party.End(now, c.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: k.claim}), now)
		}
	}
	switch {
	case c.open && now >= c.deadline:
		w.loseSession(p, "its deadline has passed")
	case c.open && c.returns && !c.renewing && now >= c.retryAt:
		w.attachesAgain(p)
	case now >= c.retryAt && !c.open:
		w.clientStarts(p)
	case c.open && !c.renewing && (now >= c.renewAt || now >= c.retryAt):
		c.retryAt = never
		w.renew(p)
	}
	for _, x := range c.claims {
		if x.held && now >= x.end {
			w.tell("p%d: hold %d has lapsed", p.index, x.id)
			x.held, x.over = false, true
			lapse := lockkeeper.Lapse{ID: x.id, Reason: lockkeeper.Stolen}
			c.begin(Lapse, x.id, p.party.End(now, c.key, lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lapse}), now)
		}
	}
	w.flush(p)
}

// acts reports whether the client may be using the hold at this moment.
func (w *world) acts(p *process, x *wish) bool {
	now := p.time(w)
	return x.held && p.client.open && now < p.client.deadline && now < x.end
}

func (x *wish) paths() []string {
	var all []string
	for _, t := range x.want.Targets {
		all = append(all, string(t.Path))
	}
	return all
}

func (x *wish) ref(p *process) string { return fmt.Sprintf("%s.%d", p.client.session, x.id) }
