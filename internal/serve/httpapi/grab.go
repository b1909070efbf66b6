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

// placeRetry is how long after an engine could not tell of a place it is asked again.
const placeRetry = time.Second

// grabRoutes are locks for a name (package grab), for shells: four methods, and
// all that is to be known can stand in the URL.
var grabRoutes = []route{
	{pattern: "GET /v1/grab/{path...}", handle: (*call).lookPlace},
	{pattern: "POST /v1/grab/{path...}", body: true, handle: (*call).grabPlace},
	{pattern: "PATCH /v1/grab/{path...}", body: true, handle: (*call).renewPlace},
	{pattern: "DELETE /v1/grab/{path...}", handle: (*call).releasePlace},
}

// placeAnswer is what a name has. Durations count from when the request was sent.
type placeAnswer struct {
	Op        string               `json:"op"` // look, grab, renew, release
	As        string               `json:"as,omitempty"`
	Path      lockkeeper.Path      `json:"path"`
	Also      []lockkeeper.Path    `json:"also,omitempty"`
	Status    string               `json:"status"` // ok, wait; of a look also none, and of one without a name free, taken
	Claim     *lockkeeper.Ref      `json:"claim,omitempty"`
	Fence     uint64               `json:"fence,omitempty"`
	Token     string               `json:"token,omitempty"`    // of ok: identifies this hold
	Slot      int                  `json:"slot,omitempty"`     // of one unit
	Position  int                  `json:"position,omitempty"` // of wait
	TTL       seconds              `json:"ttl,omitempty"`      // of grab: it is there for so long without a repeat
	ETA       seconds              `json:"eta,omitempty"`
	BlockedBy []lockkeeper.Blocker `json:"blocked_by,omitempty"`
	OwnHolds  []lockkeeper.Path    `json:"own_holds,omitempty"` // other paths at which the same name holds what is in its way
	Asked     *lockkeeper.Asked    `json:"asked,omitempty"`     // to yield
	Lost      string               `json:"lost,omitempty"`      // what became of the hold before; told once
	Draining  bool                 `json:"draining,omitempty"`
	// of a look without a name: so many hold something that meets the path
	Held     *int `json:"held,omitempty"`
	Waiting  *int `json:"waiting,omitempty"`  // likewise
	Released *int `json:"released,omitempty"` // of release
}

// answerOf tells what a name has.
func answerOf(op string, n grab.Name, a grab.Answer) *placeAnswer {
	answer := &placeAnswer{
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

// line is the answer for shells: "ok TOKEN", "ok TOKEN SLOT", "wait POSITION",
// "released N", or the status alone.
func (a *placeAnswer) line() string {
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

// tellPlace writes the answer as JSON, or as one line if that is accepted alone.
func (c *call) tellPlace(a *placeAnswer) error {
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

// releasePlace gives back what a name has. That it had nothing is no error.
func (c *call) releasePlace() error {
	ask, err := c.placeRequest()
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
	return c.tellPlace(answer)
}

// lookPlace tells what a name has, and refreshes nothing; or, without a name, whether
// anybody has anything there.
func (c *call) lookPlace() error {
	ask, err := c.placeRequest()
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
	return c.tellPlace(answerOf("look", n, a))
}

// lookPath tells how many hold or wait for something that meets the paths. Who may not
// see all of them there is refused: to it "free" would be said of what is taken.
func (c *call) lookPath(paths []lockkeeper.Path) error {
	for _, p := range paths {
		if err := c.pass.May(access.Look, p); err != nil {
			return err
		}
	}
	answer := &placeAnswer{Op: "look", Path: paths[0], Also: paths[1:], Status: "free", Held: new(int), Waiting: new(int)}
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
	return c.tellPlace(answer)
}

// renewPlace renews the claim of a name, and never creates one.
func (c *call) renewPlace() error {
	ask, err := c.placeRequest()
	if err != nil {
		return err
	}
	n := ask.Name()
	a, err := grab.New(c.engine()).Renew(c.r.Context(), n, ask.Terms)
	if err != nil {
		return unknownPlace(err)
	}
	return c.tellPlace(answerOf("renew", n, a))
}

// unknownPlace returns the error of a renewal without a claim at the engine: there may never
// have been one.
func unknownPlace(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost || e.Reason != lockkeeper.NoReason {
		return err
	}
	unknown := *e
	unknown.Err = lockkeeper.ErrNotHeld
	return &unknown
}

// grabPlace gives a name what it asks for, or a place in line, or refreshes what it
// has. With wait it stays open for so long until that is a hold, and repeats the
// caller's request meanwhile; what it has then lives on for its TTL.
func (c *call) grabPlace() error {
	ask, err := c.placeRequest()
	if err != nil {
		return err
	}
	places := grab.New(c.engine())
	if ask.token != (grab.Token{}) {
		a, err := places.Confirm(c.r.Context(), ask.Request, ask.token)
		if err != nil {
			return err
		}
		return c.tellPlace(answerOf("grab", ask.Name(), a))
	}
	a, err := places.Grab(c.r.Context(), ask.Request)
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
		if err = c.news(ask.Name().Ref(), min(left, a.TTL/3)); err != nil {
			break // nobody is there any more: the place lives on for its TTL
		}
		asked = time.Now()
		if a, err = places.Grab(c.r.Context(), ask.Request); lost == nil {
			lost = a.Lost
		}
	}
	if err != nil {
		return err
	}
	// The caller counts from when it sent the request, which was before it arrived.
	a.TTL += asked.Sub(c.received)
	a.Lost = lost
	return c.tellPlace(answerOf("grab", ask.Name(), a))
}

// news waits until a place has come up or has ended, or the server or the pass does,
// or for so long. It fails when the caller has gone.
func (c *call) news(ref lockkeeper.Ref, atMost time.Duration) error {
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
			_ = solo.Pause(ctx, placeRetry) // an engine that can't tell is asked by the next repeat
			break
		}
		if st.State != lockkeeper.Waiting {
			break
		}
	}
	select {
	case <-c.pass.Done():
		return withdrawn()
	default:
		return context.Cause(c.r.Context())
	}
}

// acceptsText reports whether whoever asks wants a line of text, and not JSON.
func acceptsText(r *http.Request) bool {
	accepts := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accepts, "text/plain") && !strings.Contains(accepts, "json")
}
