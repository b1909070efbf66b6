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

// lateCommits makes an engine in memory one whose decisions wait for a commit, which ends after a
// while.
type lateCommits struct{ lockkeeper.Engine }

// lateCommit is finished with err.
type lateCommit struct {
	done chan struct{}
	err  error
}

func newLateCommit(after time.Duration, err error) *lateCommit {
	c := &lateCommit{make(chan struct{}), err}
	time.AfterFunc(after, func() { close(c.done) })
	return c
}

func (c *lateCommit) Done() <-chan struct{} { return c.done }

func (c *lateCommit) Finish() error { return c.err }

func (e lateCommits) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	lease, _, err := e.Engine.(lockkeeper.GroupCommitter).BeginOpen(ctx, s, w, notify)
	return lease, newLateCommit(time.Millisecond, nil), err
}

func (e lateCommits) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	st, err := e.Engine.Claim(ctx, k, w)
	return st, newLateCommit(time.Millisecond, nil), err
}

func (e lateCommits) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	lease, err := e.Engine.Renew(ctx, k)
	return lease, newLateCommit(time.Millisecond, nil), err
}

func (e lateCommits) BeginEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) (lockkeeper.Commit,
	error) {
	return newLateCommit(time.Millisecond, nil), e.Engine.End(ctx, k, ending)
}

func (e lateCommits) BeginLeave(ctx context.Context, k lockkeeper.Key, id uint64) (lockkeeper.Status, lockkeeper.Commit,
	error) {
	st, _, err := e.Engine.(lockkeeper.GroupCommitter).BeginLeave(ctx, k, id)
	return st, newLateCommit(time.Millisecond, nil), err
}

// begins makes the calls that the engine begins, as a server does.
type begins struct{ lockkeeper.Engine }

func (b begins) group() lockkeeper.GroupCommitter { return b.Engine.(lockkeeper.GroupCommitter) }

// finished returns the answer to a decision.
func finished(commit lockkeeper.Commit, refused error) error {
	if commit == nil {
		return refused
	}
	<-commit.Done()
	if err := commit.Finish(); err != nil {
		return err
	}
	return refused
}

func (b begins) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	st, commit, err := b.group().BeginClaim(ctx, k, w)
	if err == lockkeeper.ErrNotBegun {
		return b.Engine.Claim(ctx, k, w)
	}
	if err = finished(commit, err); err != nil {
		return lockkeeper.Status{}, err
	}
	return st, nil
}

func (b begins) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, commit, err := b.group().BeginRenew(ctx, k)
	if err = finished(commit, err); err != nil {
		return lockkeeper.Lease{}, err
	}
	return lease, nil
}

func (b begins) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	if e.Kind == lockkeeper.Leave {
		_, commit, err := b.group().BeginLeave(ctx, k, 1)
		return finished(commit, err)
	}
	commit, err := b.group().BeginEnd(ctx, k, e)
	if err == lockkeeper.ErrNotBegun {
		return b.Engine.End(ctx, k, e)
	}
	return finished(commit, err)
}

// The engine of a pass whose calls are begun, and finished later, passes the suite of every engine.
func TestConformanceOfBegunCalls(t *testing.T) {
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
					pass, err := access.New(lateCommits{e}, use, o).Admit(access.Credentials{Token: token})
					if err != nil {
						t.Fatal(err)
					}
					return &closing{begins{pass.Engine()}, e}
				}
			},
		}
		t.Run(name, func(t *testing.T) { enginetest.Run(t, harness) })
	}
}

// lossyGroup is a lossy engine that makes its answers durable later, or fails to.
type lossyGroup struct{ *lossy }

// decide makes a call, whose commit may fail. A call that does not arrive fails at once.
func decide[T any](l *lossy, do func() (T, error)) (answer T, commit lockkeeper.Commit, err error) {
	arrives, answered, _, after := l.draw()
	if !arrives {
		return answer, nil, errLost
	}
	var failed error
	if !answered {
		failed = errLost
	}
	answer, err = do()
	return answer, newLateCommit(after, failed), err
}

func (l lossyGroup) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	return decide(l.lossy, func() (lockkeeper.Lease, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		defer l.checkQuota()
		lease, _, err := l.Engine.(lockkeeper.GroupCommitter).BeginOpen(ctx, s, w, notify)
		return lease, err
	})
}

func (l lossyGroup) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	return decide(l.lossy, func() (lockkeeper.Status, error) { return l.checkedClaim(ctx, k, w) })
}

func (l lossyGroup) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	return decide(l.lossy, func() (lockkeeper.Lease, error) { return l.Engine.Renew(ctx, k) })
}

func (l lossyGroup) BeginEnd(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) (lockkeeper.Commit, error) {
	_, commit, err := decide(l.lossy, func() (struct{}, error) { return struct{}{}, l.Engine.End(ctx, k, e) })
	return commit, err
}

func (l lossyGroup) BeginLeave(ctx context.Context, k lockkeeper.Key, id uint64) (lockkeeper.Status, lockkeeper.Commit,
	error) {
	return decide(l.lossy, func() (lockkeeper.Status, error) {
		st, _, err := l.Engine.(lockkeeper.GroupCommitter).BeginLeave(ctx, k, id)
		return st, err
	})
}

// Commits fail or are late: the engine never has more than the quota, and in the end the usage is
// zero.
func TestFailedCommitsNeverExceedQuota(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(20, 1000)) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lossesNeverExceedQuota(t, seed, func(l *lossy) lockkeeper.Engine { return lossyGroup{l} },
					func(e lockkeeper.Engine) lockkeeper.Engine { return begins{e} })
			})
		}) {
			t.Fatal("replay: " + testmode.Replay(t, seed))
		}
	}
}

// lostCommits is an engine of which every commit of a claim fails.
type lostCommits struct{ lateCommits }

func (e lostCommits) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	st, err := e.Engine.Claim(ctx, k, w)
	return st, newLateCommit(0, errLost), err
}

// A claim whose commit failed counts, whatever was decided: its outcome is unknown.
func TestFailedCommitStaysCounted(t *testing.T) {
	s := newSite(t, limited(access.Quota{Claims: 1}), access.Options{})
	s.user("ops", "o").takes("db")
	s.open(lostCommits{lateCommits{s.engine}}, access.Options{})
	ci := s.user("ci", "c")
	ci.Engine = begins{ci.Engine}
	_, err := ci.tries(ci.wants("db")) // decided: it is taken
	s.is("a claim whose commit fails", err, lockkeeper.ErrUnavailable)
	_, err = ci.tries(ci.wants("disk"))
	s.is("a claim beyond the quota", err, lockkeeper.Quota)
}

// The pass of an engine without groups has none.
func TestOnlyGroupCommittersBegin(t *testing.T) {
	e := struct{ lockkeeper.Engine }{memlock.New()}
	defer e.Close()
	pass, err := access.New(e, nil, access.Options{}).Admit(access.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := pass.Engine().(lockkeeper.GroupCommitter); ok {
		t.Error("it begins calls that the engine can't begin")
	}
}
