package redislink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
)

var (
	// ErrDenied: a server refuses the user, or one of the commands that the engine needs.
	ErrDenied = errors.New("the server denies the user a right")
	// ErrNoSet: there is no set yet, and the group may not make one.
	ErrNoSet = errors.New("the servers are not used for locks yet")
)

// OnlyExisting forbids the group to make a set. It is called before Links are used.
func (g *Group) OnlyExisting() { g.existing = true }

// Failed returns a channel that is closed when the set can't be used for a reason that waiting does
// not change. Err then returns it.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// setErr notes why the set can't be used. The first permanent reason stays.
func (g *Group) setErr(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.failed:
		if err != nil {
			return
		}
	default:
	}
	g.err = err
	for _, permanent := range []error{
		redisconn.ErrUnfit, membership.ErrForeign, membership.ErrMajorityLost, ErrDenied, ErrNoSet,
	} {
		if errors.Is(err, permanent) && !g.permanent {
			g.permanent = true
			close(g.failed)
		}
	}
}

// denied adds what to do to a refusal for want of a right.
func (g *Group) denied(err error) error {
	if err == nil || !redisconn.Denied(err) || errors.Is(err, ErrDenied) {
		return err
	}
	return fmt.Errorf("%w: %w; the rights of the user must include (ACL SETUSER): %s", ErrDenied, err,
		Rights(g.prefix))
}

// Inspect asks all servers for their facts, and refuses servers that can't keep locks. It does not
// wait long for a minority. The error matches redisconn.ErrUnfit, ErrDenied or membership.ErrNotYet.
func (g *Group) Inspect(ctx context.Context) error {
	facts, errs := g.Facts(ctx)
	answers := 0
	var silent []string
	for i := range errs {
		err := errs[i]
		if err == nil {
			err = facts[i].Refusal()
		}
		switch err = g.denied(err); {
		case err == nil:
			answers++
		case errors.Is(err, redisconn.ErrUnfit), errors.Is(err, ErrDenied):
			return fmt.Errorf("%s: %w", g.conns[i].Address(), err)
		default:
			silent = append(silent, fmt.Sprintf("%s (%v)", g.conns[i].Address(), err))
		}
	}
	if majority := len(g.conns)/2 + 1; answers < majority {
		return fmt.Errorf("%w: %d of %d are needed, and these do not answer: %s", membership.ErrNotYet, majority,
			len(g.conns), strings.Join(silent, ", "))
	}
	return nil
}

const (
	factsBound = 3 * time.Second        // for a server to answer
	factsGrace = 200 * time.Millisecond // for a minority, after the others have answered
)

// Facts asks all servers for their facts at the same time. errs says which did not answer.
func (g *Group) Facts(ctx context.Context) (facts []redisconn.Facts, errs []error) {
	return g.inspect(ctx, slices.Repeat([]bool{true}, len(g.conns)), 0)
}

// inspect asks some servers for their facts at the same time. Once the answers and known, the number of
// servers that it need not ask, are a majority, it waits for the rest no longer than factsGrace.
func (g *Group) inspect(ctx context.Context, ask []bool, known int) (facts []redisconn.Facts, errs []error) {
	n := len(g.conns)
	facts, errs = make([]redisconn.Facts, n), make([]error, n)
	bounded, cancel := context.WithTimeout(ctx, factsBound)
	defer cancel()
	type answer struct {
		server int
		facts  redisconn.Facts
		err    error
	}
	answers := make(chan answer, n)
	left := 0
	for i := range g.conns {
		if !ask[i] {
			continue
		}
		left++
		errs[i] = errors.New("no answer in time")
		go func() {
			f, err := redisconn.Inspect(bounded, g.conns[i])
			answers <- answer{i, f, err}
		}()
	}
	var grace <-chan time.Time
	for left > 0 {
		if known > n/2 && grace == nil {
			grace = time.After(factsGrace)
		}
		select {
		case a := <-answers:
			left--
			facts[a.server], errs[a.server] = a.facts, a.err
			if a.err == nil {
				known++
			}
		case <-grace:
			left = 0
		case <-bounded.Done():
			left = 0
		}
	}
	return facts, errs
}

// Records returns the records of all servers, for people.
func (g *Group) Records(ctx context.Context) []membership.Record { return g.servers.Observe(ctx) }
