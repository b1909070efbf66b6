package access_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// lateAnswers makes an engine one that answers a while after it has done a call.
type lateAnswers struct{ lockkeeper.Engine }

func (e lateAnswers) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	st, err := e.Claim(ctx, k, w)
	time.AfterFunc(time.Millisecond, func() { answer(st, err) })
	return true
}

func (e lateAnswers) StartEnd(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending, answer func(error)) bool {
	err := e.End(ctx, k, x)
	time.AfterFunc(time.Millisecond, func() { answer(err) })
	return true
}

// starts makes the calls that the engine starts, as a server does.
type starts struct{ lockkeeper.Engine }

func (s starts) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (st lockkeeper.Status, err error) {
	done := make(chan struct{})
	if !s.Engine.(lockkeeper.Starter).StartClaim(ctx, k, w, func(answer lockkeeper.Status, failed error) {
		st, err = answer, failed
		close(done)
	}) {
		return s.Engine.Claim(ctx, k, w)
	}
	<-done
	return st, err
}

func (s starts) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) (err error) {
	done := make(chan struct{})
	if !s.Engine.(lockkeeper.Starter).StartEnd(ctx, k, x, func(failed error) {
		err = failed
		close(done)
	}) {
		return s.Engine.End(ctx, k, x)
	}
	<-done
	return err
}

// The engine of a pass whose calls are started, and answered later, passes the suite of every engine.
func TestConformanceOfStartedCalls(t *testing.T) {
	policy, secret := everything("ci")
	for name, o := range map[string]access.Options{"identity": {}, "open": {}, "uncounted": {Uncounted: true}} {
		harness := enginetest.Harness{
			Bubble: true,
			Fresh: func(t *testing.T) enginetest.Open {
				return func() lockkeeper.Engine {
					e := memlock.New()
					use, token := policy, secret
					if name != "identity" {
						use, token = nil, ""
					}
					pass, err := access.New(lateAnswers{struct{ lockkeeper.Engine }{e}}, use, o).Admit(
						access.Credentials{Token: token})
					if err != nil {
						t.Fatal(err)
					}
					return &closing{starts{pass.Engine()}, e}
				}
			},
		}
		t.Run(name, func(t *testing.T) { enginetest.Run(t, harness) })
	}
}

// lossyStarter is a lossy engine that answers later, or with a loss.
type lossyStarter struct{ lossyPlain }

// lossyPlain hides that the engine beneath can begin calls.
type lossyPlain struct{ lockkeeper.Engine }

func (l lossyStarter) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	go func() { answer(l.Claim(ctx, k, w)) }()
	return true
}

func (l lossyStarter) StartEnd(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending, answer func(error)) bool {
	go func() { answer(l.End(ctx, k, x)) }()
	return true
}

// Answers are lost or late: the engine never has more than the quota, and in the end the usage is zero.
func TestLostAnswersOfStartedCallsNeverExceedQuota(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(20, 1000)) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lossesNeverExceedQuota(t, seed, func(l *lossy) lockkeeper.Engine { return lossyStarter{lossyPlain{l}} },
					func(e lockkeeper.Engine) lockkeeper.Engine { return starts{e} })
			})
		}) {
			t.Fatal("replay: " + testmode.Replay(t, seed))
		}
	}
}

// A gate that drains settles when a claim that was started has its answer.
func TestDrainWaitsForStartedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		defer e.Close()
		gate := access.New(lateAnswers{struct{ lockkeeper.Engine }{e}}, nil, access.Options{Uncounted: true})
		pass, err := gate.Admit(access.Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := pass.Engine().Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		began, answered := time.Now(), false
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		pass.Engine().(lockkeeper.Starter).StartClaim(t.Context(), lease.Key, want, func(_ lockkeeper.Status, err error) {
			answered = err == nil
		})
		gate.Drain("the test says so")
		if err := gate.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !answered || time.Since(began) < time.Millisecond {
			t.Errorf("drained after %s, and the claim is answered: %t", time.Since(began), answered)
		}
	})
}
