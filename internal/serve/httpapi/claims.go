package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// mostKey bounds an Idempotency-Key, in bytes.
const mostKey = 255

var claimRoutes = []route{
	{"POST /v1/claims", true, (*call).makeClaim},
	{"GET /v1/claims", false, broad((*call).listClaims)},
	{"GET /v1/claims/{claim}", false, (*call).lookAtClaim},
	{"POST /v1/claims/{claim}/renew", false, (*call).renewClaim},
	{"PATCH /v1/claims/{claim}", true, (*call).amendClaim},
	{"DELETE /v1/claims/{claim}", false, (*call).releaseClaim},
	{"POST /v1/claims/{claim}/revoke", true, (*call).revokeClaim},
}

// ref is the {claim} of the URL.
func (c *call) ref(m *mistakes) lockkeeper.Ref {
	ref, err := lockkeeper.ParseRef(c.r.PathValue("claim"))
	m.add(err)
	return ref
}

// key is the Idempotency-Key, "" if there is none.
func (c *call) key(m *mistakes) string {
	lines := c.r.Header.Values("Idempotency-Key")
	switch {
	case len(lines) == 0:
		return ""
	case len(lines) > 1 || lines[0] == "" || len(lines[0]) > mostKey:
		m.addf("Idempotency-Key: give one of 1 to %d bytes, that no other claim of yours has", mostKey)
	}
	return lines[0]
}

// makeClaim is POST /v1/claims: it makes a claim, with a session of its own, and
// waits for it for as long as the poll.
func (c *call) makeClaim() error {
	var m mistakes
	q := c.query(&m, "poll")
	var asked claimRequest
	c.body(&asked, &m)
	want, ttl := asked.want(&m), asked.ttl(&m)
	key, longest := c.key(&m), pollOf(q.Get("poll"), pollFor(want.Wait), &m)
	err := m.err()
	if err == nil {
		err = c.engine().Guarantees().Refuse(&want)
	}
	if err != nil {
		return err
	}
	p, err := c.open(longest)
	if err != nil {
		return err
	}
	defer p.close()
	return c.obtain(c.session(newSessionID(ttl, key), ttl), want, p)
}

// obtain makes the claim and answers with what came of it. It ends a claim that its client can't
// know of; a client with a key can ask for its claim again.
func (c *call) obtain(t *claimSession, want lockkeeper.Want, p *poll) error {
	now, err := t.claim(c.r.Context(), want)
	if solo.Refused(err) && t.keyed() {
		t.LeaveUnclaimed(c.r.Context(), t.ttl, now.Key.Epoch)
	}
	if err == nil && p != nil && now.State == lockkeeper.Waiting {
		p.enough = func(st *lockkeeper.Status) bool { return st.State != lockkeeper.Waiting }
		now, err = p.keep(t)
	}
	if err == nil && now.State == lockkeeper.Waiting {
		err = t.locate(c.r.Context(), &now)
	}
	if err == nil {
		err = t.over(now.Status)
		if want.Wait == 0 {
			err = onlyTried(err)
		}
	}
	if err == nil && c.r.Context().Err() != nil {
		err = errGone
	}
	if err == nil {
		c.w.Header().Set("Location", "/v1/claims/"+t.Ref().String())
		err = c.tell(madeStatus(&now.Status), now)
	}
	if err != nil && !t.keyed() {
		t.abandon(c.r.Context())
	}
	return err
}

// madeStatus is 201 for what is held, and 202 for what waits.
func madeStatus(st *lockkeeper.Status) int {
	if st.State == lockkeeper.Waiting {
		return http.StatusAccepted
	}
	return http.StatusCreated
}

// tell answers with a claim of this client.
func (c *call) tell(status int, now observation) error {
	text, err := c.claimText(&now)
	if err != nil {
		return err
	}
	if err := c.sendBytes(status, "application/json", text); err != nil {
		return err
	}
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return errGone
	}
	return nil
}

// claimText is a claim in JSON: that of its Status, and the TTL if it was renewed.
// What is left of something counts from when the request was received, and was
// true later: so who counts from when it was sent never believes in a hold for
// longer than the engine promised (R12).
func (c *call) claimText(now *observation) ([]byte, error) {
	st := now.Status
	later := max(0, now.At.Sub(c.received))
	if st.Left != lockkeeper.Forever && st.Left != 0 {
		st.Left += later
	}
	if st.Asked != nil && st.Asked.Left != lockkeeper.Forever {
		asked := *st.Asked
		asked.Left += later
		st.Asked = &asked
	}
	text, err := st.MarshalJSON() // the library would look through it once more
	if err != nil || now.Renewed.IsZero() {
		return append(text, '\n'), err
	}
	ttl, err := (seconds(max(0, now.Renewed.Sub(c.received)) + now.TTL)).MarshalJSON()
	text = append(append(text[:len(text)-1], `,"ttl":`...), ttl...)
	return append(text, '}', '\n'), err
}

// lookAtClaim is GET /v1/claims/{claim}: how it stands. It renews nothing.
func (c *call) lookAtClaim() error {
	var m mistakes
	ref := c.ref(&m)
	p, change, err := c.asks(&m)
	if err != nil {
		return err
	}
	defer p.close()
	truth := func(ctx context.Context) (observation, error) {
		ctx, cancel := context.WithTimeout(ctx, solo.RoundTrip)
		defer cancel()
		now := observation{At: time.Now()}
		now.Status, err = solo.Look(ctx, c.engine(), ref)
		if err == nil && now.State == 0 {
			err = unknownClaim(ref)
		}
		return now, err
	}
	now, err := truth(c.r.Context())
	if err == nil && p != nil {
		p.ref, p.enough = ref, news(change)
		if !p.enough(&now.Status) {
			now, err = p.watch(0, truth)
		}
	}
	if err != nil {
		return err
	}
	return c.tell(http.StatusOK, now)
}

// asks reads the parameters of a look, and opens its poll. Close it.
func (c *call) asks(m *mistakes) (p *poll, change uint64, err error) {
	q := c.query(m, "poll", "change")
	longest := pollOf(q.Get("poll"), 0, m)
	change = changeOf(q.Get("change"), m)
	if err := m.err(); err != nil {
		return nil, 0, err
	}
	p, err = c.open(longest)
	return p, change, err
}

// news tells what a poll waits for: anything newer than a change, or, where none is
// named, that it waits no more.
func news(change uint64) func(*lockkeeper.Status) bool {
	return func(st *lockkeeper.Status) bool {
		return st.State == lockkeeper.Ended || change != 0 && st.Change > change ||
			change == 0 && st.State != lockkeeper.Waiting && !st.Converting
	}
}

// renewClaim is POST /v1/claims/{claim}/renew: heartbeat and question in one.
func (c *call) renewClaim() error {
	var m mistakes
	ref := c.ref(&m)
	p, change, err := c.asks(&m)
	if err != nil {
		return err
	}
	defer p.close()
	t, err := c.sessionOf(ref)
	if err != nil {
		return err
	}
	t.Acknowledge(change)
	now, err := t.renew(c.r.Context())
	if err == nil && p != nil {
		if p.enough = news(change); !p.enough(&now.Status) {
			now, err = p.keep(t)
		}
	}
	if err != nil {
		return err
	}
	return c.tell(http.StatusOK, now)
}

// amendClaim is PATCH /v1/claims/{claim}: another priority, limit or mode.
func (c *call) amendClaim() error {
	var m mistakes
	ref := c.ref(&m)
	q := c.query(&m, "poll")
	var asked amendment
	c.body(&asked, &m)
	var wait time.Duration
	if asked.Wait != nil {
		wait = time.Duration(*asked.Wait)
	}
	longest := pollOf(q.Get("poll"), pollFor(wait), &m)
	if err := m.err(); err != nil {
		return err
	}
	t, err := c.sessionOf(ref)
	if err != nil {
		return err
	}
	p, err := c.open(longest)
	if err != nil {
		return err
	}
	defer p.close()
	now, err := t.amend(c.r.Context(), &asked)
	if err == nil && now.Converting && p != nil {
		p.enough = func(st *lockkeeper.Status) bool { return !st.Converting }
		now, err = p.keep(t)
	}
	if err == nil {
		err = undone(&asked, &now.Status)
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if now.Converting {
		status = http.StatusAccepted
	}
	return c.tell(status, now)
}

// undone is the error of a conversion that did not come about; nil if it did, or waits.
func undone(asked *amendment, st *lockkeeper.Status) error {
	if asked.Mode == nil || st.Converting || st.State != lockkeeper.Held || st.Grants[0].Mode == *asked.Mode {
		return nil
	}
	e := &lockkeeper.Error{
		Err:     lockkeeper.ErrNotAcquired,
		Reason:  st.Reason,
		Detail:  "it is held " + st.Grants[0].Mode.String() + " as before",
		Blocked: st.Blockers,
	}
	if st.Reason == lockkeeper.Deadlock {
		e.Err, e.Detail = lockkeeper.ErrDeadlock, st.Text
	}
	tried := asked.Wait == nil || *asked.Wait == 0
	if e.Err == lockkeeper.ErrNotAcquired { // an engine does not tell who it was
		e.Detail += ": others have it too; GET /v1/why?path=" + url.QueryEscape(string(st.Grants[0].Path)) + " tells who"
		if tried {
			e.Detail += ", and with \"wait\" it waits for them"
		}
	}
	if tried {
		return onlyTried(e)
	}
	return e
}

// releaseClaim is DELETE /v1/claims/{claim}: it is released, or leaves the line.
func (c *call) releaseClaim() error {
	var m mistakes
	ref := c.ref(&m)
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	t, err := c.sessionOf(ref)
	if err != nil {
		return err
	}
	// Who asked for the end and went away meant it.
	if err := t.release(context.WithoutCancel(c.r.Context())); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
