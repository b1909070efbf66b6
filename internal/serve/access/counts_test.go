package access_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// After each of many random calls, the usage equals what the engine has of the identity.
func TestUsageMatchesEngine(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(30, 1000)) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { usageMatchesEngine(t, rand.New(rand.NewPCG(seed, 1))) })
		}) {
			t.Fatal("replay: " + testmode.Replay(t, seed))
		}
	}
}

func usageMatchesEngine(t *testing.T, r *rand.Rand) {
	s := newSite(t, limited(access.Quota{Claims: 6, Waiting: 3, Sessions: 3, Paths: 9}), access.Options{})
	ops := s.user("ops", "s")
	ops.attach("s", 24*time.Hour)
	users := make([]*user, 4)
	for i := range users {
		p := s.pass(s.secrets["ci"])
		users[i] = &user{site: s, pass: p, Engine: p.Engine()}
	}
	for range 300 {
		i := r.IntN(len(users))
		randomly(users[i], ops, fmt.Sprint("s", i), r)
		synctest.Wait()
		claims, waiting, paths := s.kept()
		got, gotWaiting, sessions, gotPaths := s.gate.Usage("ci")
		if got != claims || gotWaiting != waiting || gotPaths != paths || claims > 6 || waiting > 3 || paths > 9 ||
			sessions > 3 {
			t.Fatalf("%d claims, %d waiting, %d paths count (and %d sessions), the engine has %d, %d, %d", got, gotWaiting,
				gotPaths, sessions, claims, waiting, paths)
		}
	}
	time.Sleep(time.Hour)
	s.counts(0, 0, 0, 0)
	if sessions, claims := s.gate.Remembered("ci"); sessions+claims != 0 {
		t.Errorf("%d sessions and %d claims are remembered", sessions, claims)
	}
}

// kept counts the claims, waiting claims and paths of ci in the engine.
func (s *site) kept() (claims, waiting, paths int) {
	for st, err := range s.engine.List(context.Background(), lockkeeper.Query{}) {
		if err != nil {
			s.Error(err)
		}
		if !strings.HasPrefix(st.Ref.Session, "ci:") || st.State == lockkeeper.Freezing {
			continue
		}
		claims, paths = claims+1, paths+len(st.Grants)
		if st.State == lockkeeper.Waiting {
			waiting++
		}
	}
	return claims, waiting, paths
}

// randomly makes one random call for the session, which may be refused.
func randomly(u, ops *user, session string, r *rand.Rand) {
	ctx := u.Context()
	id := u.last - min(u.last, uint64(r.IntN(4)))
	u.key.LowestOpen = u.last - min(u.last, uint64(r.IntN(6)))
	path := func() string { return []string{"a", "a/1", "b", "c"}[r.IntN(4)] }
	switch p := r.IntN(20); {
	case p < 2 || u.key.Epoch == 0:
		w := u.wants(path())
		w.Wait = time.Duration(r.IntN(3)) * 3 * time.Second
		if r.IntN(2) == 0 && u.opens(session, time.Duration(1+r.IntN(20))*time.Second, w) == nil {
			return
		}
		var e *lockkeeper.Error
		if err := u.attach(session, time.Duration(1+r.IntN(20))*time.Second, u.last,
			u.last-min(u.last, 1)); errors.As(err, &e) && e.Epoch != 0 {
			u.key.Epoch = e.Epoch
		}
	case p < 5:
		if _, err := u.Renew(ctx, u.key); errors.Is(err, lockkeeper.ErrSession) && r.IntN(2) == 0 {
			u.key.Epoch = 0
		}
	case p < 11:
		w := u.wants(path())
		if r.IntN(3) == 0 {
			w.Targets = append(w.Targets, lockkeeper.Target{Path: "d", Mode: lockkeeper.ModeShared})
		}
		w.Wait = time.Duration(r.IntN(3)) * 3 * time.Second
		w.Priority = r.IntN(3)
		if r.IntN(4) == 0 {
			w.Steal, w.After = lockkeeper.Take, time.Second
		}
		if r.IntN(4) == 0 {
			w.MaxHold = time.Second
		}
		if r.IntN(8) == 0 {
			w.ID = id
		}
		if r.IntN(20) == 0 {
			w.Targets = append(w.Targets, w.Targets[0]) // invalid
		}
		_, _ = u.Claim(ctx, u.key, w)
		if r.IntN(3) == 0 {
			_, _ = u.Claim(ctx, u.key, w)
		}
	case p < 15:
		_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
	case p < 16:
		_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Leave})
	case p < 17:
		_ = ops.ends(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   lockkeeper.Ref{Session: "ci:" + session, ID: id},
			Force: r.IntN(2) == 0,
		})
	case p < 18:
		st, err := ops.tries(ops.wants(path()))
		if err == nil && r.IntN(3) > 0 {
			_ = ops.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: st.Ref.ID})
		}
	default:
		time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
	}
}

// lossy is an engine behind a network that loses calls and answers. After each claim it checks that
// the engine has no more of ci than the quota allows.
type lossy struct {
	lockkeeper.Engine
	site   *site
	mu     sync.Mutex
	random *rand.Rand
	calm   bool
}

var errLost = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "lost on the way"}

// draw decides at random whether a call arrives and whether its answer does, and the delay of each.
func (l *lossy) draw() (arrives, answered bool, before, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calm {
		return true, true, 0, 0
	}
	r := l.random
	arrives = r.IntN(10) > 0
	return arrives, arrives && r.IntN(10) > 0, time.Duration(r.IntN(200)) * time.Millisecond,
		time.Duration(r.IntN(200)) * time.Millisecond
}

func through[T any](l *lossy, do func() (T, error)) (answer T, err error) {
	arrives, answered, before, after := l.draw()
	time.Sleep(before)
	if arrives {
		answer, err = do()
	}
	time.Sleep(after)
	if !answered {
		var none T
		return none, errLost
	}
	return answer, err
}

func (l *lossy) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	return through(l, func() (lockkeeper.Lease, error) { return l.Engine.Attach(ctx, s, notify) })
}

func (l *lossy) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	return through(l, func() (lockkeeper.Lease, error) { return l.Engine.Renew(ctx, k) })
}

func (l *lossy) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	return through(l, func() (lockkeeper.Status, error) { return l.checkedClaim(ctx, k, w) })
}

func (l *lossy) checkedClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st, err := l.Engine.Claim(ctx, k, w)
	l.checkQuota()
	return st, err
}

func (l *lossy) checkQuota() {
	if claims, waiting, paths := l.site.kept(); claims > 6 || waiting > 3 || paths > 9 {
		l.site.Errorf("the engine has %d claims, %d waiting, %d paths of ci", claims, waiting, paths)
	}
}

func (l *lossy) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	_, err := through(l, func() (struct{}, error) { return struct{}{}, l.Engine.End(ctx, k, e) })
	return err
}

// Calls and answers are lost or late, and clients share sessions: the engine never has more than
// the quota, and in the end the usage is zero.
func TestLossesNeverExceedQuota(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(20, 1000)) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lossesNeverExceedQuota(t, seed, func(l *lossy) lockkeeper.Engine { return l },
					func(e lockkeeper.Engine) lockkeeper.Engine { return e })
			})
		}) {
			t.Fatal("replay: " + testmode.Replay(t, seed))
		}
	}
}

// lossesNeverExceedQuota gives the gate the engine that behind returns, and each client what by makes
// of its pass's engine.
func lossesNeverExceedQuota(t *testing.T, seed uint64, behind func(*lossy) lockkeeper.Engine,
	by func(lockkeeper.Engine) lockkeeper.Engine) {
	s := newSite(t, limited(access.Quota{Claims: 6, Waiting: 3, Sessions: 3, Paths: 9}), access.Options{})
	way := &lossy{Engine: s.engine, site: s, random: rand.New(rand.NewPCG(seed, 2))}
	s.open(behind(way), access.Options{})
	direct := access.New(s.engine, &s.policy, access.Options{})
	operator, err := direct.Admit(access.Credentials{Token: s.secrets["ops"]})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range 8 {
		ops := &user{site: s, pass: operator, Engine: operator.Engine()}
		if err := ops.attach(fmt.Sprint("s", i), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		p := s.pass(s.secrets["ci"])
		u := &user{site: s, pass: p, Engine: by(p.Engine()), last: uint64(i) * 3}
		r := rand.New(rand.NewPCG(seed, uint64(10+i)))
		running.Go(func() {
			for range 150 {
				randomly(u, ops, fmt.Sprint("s", i%4), r) // two clients share each session
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
		})
	}
	running.Wait()
	time.Sleep(time.Hour)
	s.counts(0, 0, 0, 0)
	if sessions, claims := s.gate.Remembered("ci"); sessions+claims != 0 {
		t.Errorf("%d sessions and %d claims are remembered", sessions, claims)
	}
	if claims, sessions := s.gate.Total(); claims+sessions != 0 {
		t.Errorf("%d claims and %d sessions count in total", claims, sessions)
	}
}
