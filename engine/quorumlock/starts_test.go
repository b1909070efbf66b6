package quorumlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// started makes the calls of an engine that it starts, as a server does.
type started struct{ *Engine }

func (s started) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	type answer struct {
		status lockkeeper.Status
		err    error
	}
	answers := make(chan answer, 1)
	s.StartClaim(ctx, k, w, func(st lockkeeper.Status, err error) { answers <- answer{st, err} })
	select {
	case a := <-answers:
		return a.status, a.err
	case <-ctx.Done():
		return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
	}
}

func (s started) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) error {
	answers := make(chan error, 1)
	s.StartEnd(ctx, k, x, func(err error) { answers <- err })
	select {
	case err := <-answers:
		return err
	case <-ctx.Done():
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
	}
}

func startedHarness(n int) enginetest.Harness {
	h := harness(n)
	fresh := h.Fresh
	h.Fresh = func(t *testing.T) enginetest.Open {
		open := fresh(t)
		return func() lockkeeper.Engine { return started{open().(*Engine)} }
	}
	return h
}

// Calls that are started have the answers of those that wait.
func TestConformanceOfStartedCalls(t *testing.T) { enginetest.Run(t, startedHarness(3)) }

func TestStressOfStartedCalls(t *testing.T) { enginetest.Stress(t, startedHarness(3)) }

// A started call gets exactly one answer, also if the node is closed or no leader takes it.
func TestStartedCallIsAnsweredOnce(t *testing.T) {
	for name, bring := range map[string]func(c *cluster, e *Engine){
		"done":   func(*cluster, *Engine) {},
		"closed": func(_ *cluster, e *Engine) { e.Close() },
		"no majority": func(c *cluster, _ *Engine) {
			c.servers[1].stop()
			c.servers[2].stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, 0)
				c.ready()
				e := c.servers[0].engine
				answers := make(chan error, 200)
				start := func() {
					for range 50 {
						e.StartEnd(t.Context(), lockkeeper.Key{Session: "no such", Epoch: 1},
							lockkeeper.Ending{Kind: lockkeeper.Leave}, func(err error) { answers <- err })
					}
				}
				start()
				bring(c, e)
				start()
				time.Sleep(2 * callTimeout)
				if len(answers) != 100 {
					t.Errorf("%d answers to 100 calls", len(answers))
				}
				for len(answers) > 0 {
					err := <-answers
					if !errors.Is(err, lockkeeper.ErrUnavailable) && !errors.Is(err, lockkeeper.ErrSession) {
						t.Errorf("answered by %v", err)
					}
				}
			})
		})
	}
}
