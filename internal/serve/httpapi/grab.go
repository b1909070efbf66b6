package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// listRetry is the pause after a List that failed.
const listRetry = time.Second

// grabRoutes are locks for a name (package grab), for shells: all arguments may be in the URL.
var grabRoutes = []route{
	{pattern: "GET /v1/grab/{path...}", handle: (*call).lookName},
	{pattern: "POST /v1/grab/{path...}", body: true, handle: (*call).grabName},
	{pattern: "PATCH /v1/grab/{path...}", body: true, handle: (*call).renewName},
	{pattern: "DELETE /v1/grab/{path...}", handle: (*call).releaseName},
}

// A grabAnswer is the claim of a name. Durations count from when the request was sent.
type grabAnswer struct {
	Op        string               `json:"op"` // look, grab, renew, release
	As        string               `json:"as,omitempty"`
	Path      lockkeeper.Path      `json:"path"`
	Also      []lockkeeper.Path    `json:"also,omitempty"`
	Status    string               `json:"status"` // ok, wait; of a look none, too; of a look without a name: free, taken
	Claim     *lockkeeper.Ref      `json:"claim,omitempty"`
	Fence     uint64               `json:"fence,omitempty"`
	Token     string               `json:"token,omitempty"`    // of ok: the fence of this hold
	Slot      int                  `json:"slot,omitempty"`     // of one unit
	Position  int                  `json:"position,omitempty"` // of wait
	TTL       seconds              `json:"ttl,omitempty"`      // until the claim ends without a repeat
	ETA       seconds              `json:"eta,omitempty"`
	BlockedBy []lockkeeper.Blocker `json:"blocked_by,omitempty"`
	OwnHolds  []lockkeeper.Path    `json:"own_holds,omitempty"` // other paths where the name holds what blocks it
	Asked     *lockkeeper.Asked    `json:"asked,omitempty"`     // a request to yield
	Lost      string               `json:"lost,omitempty"`      // once: how the hold before ended
	Draining  bool                 `json:"draining,omitempty"`
	// of a look without a name: the number of claims that overlap the path
	Held     *int `json:"held,omitempty"`
	Waiting  *int `json:"waiting,omitempty"`  // the same for waiting claims
	Released *int `json:"released,omitempty"` // of release
}

// answerOf returns the answer for a name.
func answerOf(op string, n grab.Name, a grab.Answer) *grabAnswer {
	answer := &grabAnswer{
		Op: op, As: n.As, Path: n.Paths[0], Also: n.Paths[1:], Status: "none",
		TTL: seconds(a.TTL), ETA: seconds(a.ETA), BlockedBy: a.Blockers, OwnHolds: a.OwnHolds, Asked: a.Asked,
	}
	if a.State == lockkeeper.Held || a.State == lockkeeper.Waiting {
		answer.Claim = &a.Ref
	}
	switch a.State {
	case lockkeeper.Held:
		answer.Status, answer.Fence, answer.Token = "ok", a.Fence, a.Token.String()
		if len(a.Grants) == 1 {
			answer.Slot = a.Grants[0].Slot
		}
	case lockkeeper.Waiting:
		answer.Status, answer.Position = "wait", a.Position
	case lockkeeper.Ended:
		answer.BlockedBy, answer.Asked, answer.ETA = nil, nil, 0
		answer.Lost = a.Reason.String()
		if a.Text != "" {
			answer.Lost += ": " + a.Text
		}
	}
	if a.Lost != nil {
		answer.Lost = a.Lost.Error()
	}
	return answer
}

// line returns the answer for shells: "ok TOKEN", "ok TOKEN SLOT", "wait POSITION", "released N",
// or the status alone.
func (a *grabAnswer) line() string {
	switch {
	case a.Released != nil:
		return fmt.Sprintf("released %d", *a.Released)
	case a.Status == "ok" && a.Slot > 0:
		return fmt.Sprintf("ok %s %d", a.Token, a.Slot)
	case a.Status == "ok":
		return "ok " + a.Token
	case a.Status == "wait":
		return fmt.Sprintf("wait %d", a.Position)
	}
	return a.Status
}

// writeGrab writes the answer as JSON, or as one line if the client accepts only text.
func (c *call) writeGrab(a *grabAnswer) error {
	_, a.Draining = c.api.gate.Draining()
	code := http.StatusOK
	if a.Status == "wait" && a.Op != "look" {
		code = http.StatusAccepted
	}
	if acceptsText(c.r) {
		return c.sendBytes(code, "text/plain; charset=utf-8", []byte(a.line()+"\n"))
	}
	return c.write(code, a)
}

// releaseName releases the claim of a name. A name without a claim is no error.
func (c *call) releaseName() error {
	ask, err := c.readGrab()
	if err != nil {
		return err
	}
	n := ask.Name()
	released, err := grab.New(c.engine()).Release(c.r.Context(), n)
	if err != nil {
		return err
	}
	answer := answerOf("release", n, grab.Answer{})
	answer.Status, answer.Released = "ok", &released
	return c.writeGrab(answer)
}

// lookName answers with the claim of a name, and renews nothing. Without a name it answers whether
// any claim overlaps the paths.
func (c *call) lookName() error {
	ask, err := c.readGrab()
	if err != nil {
		return err
	}
	n := ask.Name()
	if n.As == "" {
		return c.lookPath(n.Paths)
	}
	a, err := grab.New(c.engine()).Look(c.r.Context(), n)
	if err != nil {
		return err
	}
	return c.writeGrab(answerOf("look", n, a))
}

// lookPath counts the claims that overlap the paths. It refuses a caller that may not see all of
// them, because "free" could be wrong.
func (c *call) lookPath(paths []lockkeeper.Path) error {
	for _, p := range paths {
		if err := c.pass.May(access.Look, p); err != nil {
			return err
		}
	}
	answer := &grabAnswer{Op: "look", Path: paths[0], Also: paths[1:], Status: "free", Held: new(int), Waiting: new(int)}
	seen := make(map[lockkeeper.Ref]bool)
	for _, p := range paths {
		for st, err := range c.engine().List(c.r.Context(), lockkeeper.Query{Meets: p, Brief: true}) {
			if err != nil {
				return err
			}
			if seen[st.Ref] {
				continue
			}
			if len(paths) > 1 {
				seen[st.Ref] = true
			}
			answer.Status = "taken"
			switch st.State {
			case lockkeeper.Held:
				*answer.Held++
			case lockkeeper.Waiting:
				*answer.Waiting++
			}
		}
	}
	return c.writeGrab(answer)
}

// renewName renews the claim of a name, and never makes one.
func (c *call) renewName() error {
	ask, err := c.readGrab()
	if err != nil {
		return err
	}
	n := ask.Name()
	a, err := grab.New(c.engine()).Renew(c.r.Context(), n, ask.Terms)
	if err != nil {
		return unknownName(err)
	}
	return c.writeGrab(answerOf("renew", n, a))
}

// unknownName turns a loss without a reason into ErrNotHeld: the name may never have had a claim.
func unknownName(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost || e.Reason != lockkeeper.NoReason {
		return err
	}
	unknown := *e
	unknown.Err = lockkeeper.ErrNotHeld
	return &unknown
}

// grabName makes or renews the claim of a name. With wait it stays open until the claim is held,
// and repeats the request meanwhile. Afterwards the claim lives for its TTL.
func (c *call) grabName() error {
	ask, err := c.readGrab()
	if err != nil {
		return err
	}
	reservations := grab.New(c.engine())
	if ask.token != (grab.Token{}) {
		a, err := reservations.Confirm(c.r.Context(), ask.Request, ask.token)
		if err != nil {
			return err
		}
		return c.writeGrab(answerOf("grab", ask.Name(), a))
	}
	a, err := reservations.Grab(c.r.Context(), ask.Request)
	lost, asked := a.Lost, c.received
	if err == nil && a.State == lockkeeper.Waiting && ask.wait > 0 {
		leave, err := c.take(limits.Polls)
		if err != nil {
			return err
		}
		defer leave()
	}
	for err == nil && a.State == lockkeeper.Waiting && a.OwnHolds == nil {
		left := ask.wait - time.Since(c.received)
		if left <= 0 || c.api.isStopping() {
			break
		}
		if err = c.awaitGrant(ask.Name().Ref(), min(left, a.TTL/3)); err != nil {
			break // the client has gone: the claim lives for its TTL
		}
		asked = time.Now()
		if a, err = reservations.Grab(c.r.Context(), ask.Request); lost == nil {
			lost = a.Lost
		}
	}
	if err != nil {
		return err
	}
	// The caller counts from when it sent the request, which was before c.received.
	a.TTL += asked.Sub(c.received)
	a.Lost = lost
	return c.writeGrab(answerOf("grab", ask.Name(), a))
}

// awaitGrant returns when the claim no longer waits, when the server stops, or after atMost. It
// returns an error if the caller has gone or its credentials are withdrawn.
func (c *call) awaitGrant(ref lockkeeper.Ref, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), atMost)
	defer cancel()
	followed := make(chan struct{})
	defer close(followed)
	go func() {
		select {
		case <-c.api.stopping:
			cancel()
		case <-c.pass.Done():
			cancel()
		case <-followed:
		}
	}()
	for st, err := range c.engine().List(ctx, lockkeeper.Query{Ref: ref, Follow: true, Brief: true}) {
		if err != nil {
			_ = solo.Pause(ctx, listRetry) // the next repeat asks the engine
			break
		}
		if st.State != lockkeeper.Waiting {
			break
		}
	}
	select {
	case <-c.pass.Done():
		return credentialsWithdrawn()
	default:
		return context.Cause(c.r.Context())
	}
}

// acceptsText reports whether the client accepts text and no JSON.
func acceptsText(r *http.Request) bool {
	accepts := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accepts, "text/plain") && !strings.Contains(accepts, "json")
}
