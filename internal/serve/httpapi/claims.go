package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// maxKey is the most bytes of an Idempotency-Key.
const maxKey = 255

var claimRoutes = []route{
	{"POST /v1/claims", true, (*call).makeClaim},
	{"GET /v1/claims", false, broad((*call).listClaims)},
	{"GET /v1/claims/{claim}", false, (*call).lookAtClaim},
	{"POST /v1/claims/{claim}/renew", false, (*call).renewClaim},
	{"PATCH /v1/claims/{claim}", true, (*call).amendClaim},
	{"DELETE /v1/claims/{claim}", false, (*call).releaseClaim},
	{"POST /v1/claims/{claim}/revoke", true, (*call).revokeClaim},
}

// ref returns the {claim} of the URL.
func (c *call) ref(m *mistakes) lockkeeper.Ref {
	ref, err := lockkeeper.ParseRef(c.variable)
	m.add(err)
	return ref
}

// key returns the Idempotency-Key; "" if there is none.
func (c *call) key(m *mistakes) string {
	lines := c.r.Header["Idempotency-Key"]
	switch {
	case len(lines) == 0:
		return ""
	case len(lines) > 1 || lines[0] == "" || len(lines[0]) > maxKey:
		m.addf("Idempotency-Key: give one, of 1 to %d bytes, that no other claim of yours has", maxKey)
	}
	return lines[0]
}

// makeClaim is POST /v1/claims. It makes a claim in a new session, and waits for the grant during
// the poll.
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
	if t.keyed() {
		err = withKeyHint(err)
	}
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
			err = withoutQueue(err)
		}
	}
	if err == nil && c.r.Context().Err() != nil {
		err = errGone
	}
	if err == nil {
		c.w.Header()["Location"] = []string{"/v1/claims/" + t.Ref().String()}
		err = c.writeClaim(createdStatus(&now.Status), now)
	}
	if err != nil && !t.keyed() {
		t.abandon(c.r.Context())
	}
	return err
}

// createdStatus returns 201 for a held claim, and 202 for a waiting one.
func createdStatus(st *lockkeeper.Status) int {
	if st.State == lockkeeper.Waiting {
		return http.StatusAccepted
	}
	return http.StatusCreated
}

// writeClaim answers with a claim of this client.
func (c *call) writeClaim(status int, now observation) error {
	text, err := c.claimJSON(&now)
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

// claimJSON returns the JSON of a claim: its Status, and the TTL if the claim was renewed.
// Durations until an end count from when the request was received; the package comment has the
// formulas (R12).
func (c *call) claimJSON(now *observation) ([]byte, error) {
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
	text, err := st.MarshalJSON() // without a second validation by encoding/json
	if err != nil || now.Renewed.IsZero() {
		return append(text, '\n'), err
	}
	ttl := seconds(max(0, now.Renewed.Sub(c.received)) + now.TTL)
	text = ttl.append(append(text[:len(text)-1], `,"ttl":`...))
	return append(text, '}', '\n'), nil
}

// lookAtClaim is GET /v1/claims/{claim}. It renews nothing.
func (c *call) lookAtClaim() error {
	var m mistakes
	ref := c.ref(&m)
	p, change, err := c.openPoll(&m)
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
		p.ref, p.enough = ref, newerThan(change)
		if !p.enough(&now.Status) {
			now, err = p.watch(0, truth)
		}
	}
	if err != nil {
		return err
	}
	return c.writeClaim(http.StatusOK, now)
}

// openPoll reads the parameters poll and change, and opens the poll. The caller closes it.
func (c *call) openPoll(m *mistakes) (p *poll, change uint64, err error) {
	q := c.query(m, "poll", "change")
	longest := pollOf(q.Get("poll"), 0, m)
	change = changeOf(q.Get("change"), m)
	if err := m.err(); err != nil {
		return nil, 0, err
	}
	p, err = c.open(longest)
	return p, change, err
}

// newerThan returns the condition that a poll waits for: a status newer than change, or, if change
// is 0, the end of the wait.
func newerThan(change uint64) func(*lockkeeper.Status) bool {
	return func(st *lockkeeper.Status) bool {
		return st.State == lockkeeper.Ended || change != 0 && st.Change > change ||
			change == 0 && st.State != lockkeeper.Waiting && !st.Converting
	}
}

// renewClaim is POST /v1/claims/{claim}/renew. It renews the claim and returns its status.
func (c *call) renewClaim() error {
	var m mistakes
	ref := c.ref(&m)
	p, change, err := c.openPoll(&m)
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
		if p.enough = newerThan(change); !p.enough(&now.Status) {
			now, err = p.keep(t)
		}
	}
	if err != nil {
		return err
	}
	return c.writeClaim(http.StatusOK, now)
}

// amendClaim is PATCH /v1/claims/{claim}. It changes priority, limit or mode.
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
		err = conversionError(&asked, &now.Status)
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if now.Converting {
		status = http.StatusAccepted
	}
	return c.writeClaim(status, now)
}

// conversionError returns the error of a conversion that failed; nil if it succeeded or waits.
func conversionError(asked *amendment, st *lockkeeper.Status) error {
	if asked.Mode == nil || st.Converting || st.State != lockkeeper.Held || st.Grants[0].Mode == *asked.Mode {
		return nil
	}
	e := &lockkeeper.Error{
		Err:     lockkeeper.ErrNotAcquired,
		Reason:  st.Reason,
		Detail:  "it is still held " + st.Grants[0].Mode.String(),
		Blocked: st.Blockers,
	}
	if st.Reason == lockkeeper.Deadlock {
		e.Err, e.Detail = lockkeeper.ErrDeadlock, st.Text
	}
	tried := asked.Wait == nil || *asked.Wait == 0
	if e.Err == lockkeeper.ErrNotAcquired { // the status does not name the other holders
		e.Detail += ": others hold it too; GET /v1/why?path=" + url.QueryEscape(string(st.Grants[0].Path)) + " names them"
		if tried {
			e.Detail += ", and with \"wait\" the conversion waits for them"
		}
	}
	if tried {
		return withoutQueue(e)
	}
	return e
}

// releaseClaim is DELETE /v1/claims/{claim}. It ends a held or waiting claim.
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
	// A client that has gone away still wants the end.
	if err := t.release(context.WithoutCancel(c.r.Context())); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
