package enginetest

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// link is the connection between one client and the engine. A check can cut it, or make it lose
// requests and answers or deliver every request twice. It records each request of a claim, and each
// answer with Waiting, because only that answer begins a wait.
type link struct {
	lockkeeper.Engine
	recorder    *history.Recorder
	cut         atomic.Bool
	loseAnswers atomic.Bool // it loses the answers to Claim, and nothing else
	remote      bool        // it reports an engine on the network, so that the client expects calls to fail
	duplicate   bool
	lossy       bool         // it loses one call in five, before or after the engine has executed it
	hook        func(moment) // called at the moments of Claim and of hints
	random      struct {
		sync.Mutex
		*rand.Rand
	}
}

// moment is a point in the course of a claim at which its caller may give up.
type moment string

const (
	beforeClaim moment = "before the claim arrives"
	afterClaim  moment = "before its answer arrives"
	beforeHint  moment = "before a hint arrives"
	afterHint   moment = "after a hint has arrived"
)

var moments = []moment{beforeClaim, afterClaim, beforeHint, afterHint}

func (l *link) at(m moment) {
	if l.hook != nil {
		l.hook(m)
	}
}

// recorded is the prefix of the notes of claims that are in the history.
const recorded = "recorded "

var errCut = errors.New("the link is cut")

func (l *link) roll() int {
	if !l.lossy {
		return 9
	}
	l.random.Lock()
	defer l.random.Unlock()
	return l.random.IntN(10)
}

// exchange makes one call over the link.
func (l *link) exchange(ctx context.Context, do func() error) error {
	lost := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errCut}
	outcome := l.roll()
	if l.cut.Load() || outcome == 0 {
		return lost
	}
	err := do()
	if l.duplicate {
		err = do()
	}
	if l.cut.Load() || outcome == 1 {
		return lost
	}
	return err
}

// Guarantees reports an engine on the network if the link has faults, so that the client expects
// calls to fail.
func (l *link) Guarantees() lockkeeper.Guarantees {
	g := l.Engine.Guarantees()
	if l.remote || l.lossy || l.duplicate {
		g.Reach = lockkeeper.OnNetwork
	}
	return g
}

func (l *link) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lease lockkeeper.Lease, err error) {
	hint := notify
	if notify != nil {
		hint = func(statuses []lockkeeper.Status) {
			if !l.cut.Load() && l.roll() > 1 {
				l.at(beforeHint)
				notify(statuses)
				l.at(afterHint)
			}
		}
	}
	attached := false
	err = l.exchange(ctx, func() error {
		answer, err := l.Engine.Attach(ctx, s, hint)
		if attached {
			return nil // the engine refuses the copy, and the client does not get that answer (R19)
		}
		lease, attached = answer, err == nil
		return err
	})
	return lease, err
}

func (l *link) Renew(ctx context.Context, k lockkeeper.Key) (lease lockkeeper.Lease, err error) {
	err = l.exchange(ctx, func() (err error) {
		lease, err = l.Engine.Renew(ctx, k)
		return err
	})
	return lease, err
}

func (l *link) Claim(ctx context.Context, k lockkeeper.Key, want lockkeeper.Want) (s lockkeeper.Status, err error) {
	l.at(beforeClaim)
	claim, known := strings.CutPrefix(want.Note, recorded)
	if known = known && want.Revision == 0; known {
		l.recorder.Add(history.Event{Kind: history.Sent, Client: want.As, Claim: claim})
	}
	err = l.exchange(ctx, func() (err error) {
		s, err = l.Engine.Claim(ctx, k, want)
		return err
	})
	if l.loseAnswers.Load() {
		return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errCut}
	}
	if known && err == nil && s.State == lockkeeper.Waiting {
		l.recorder.Add(history.Event{Kind: history.Waits, Client: want.As, Claim: claim})
	}
	l.at(afterClaim)
	return s, err
}

func (l *link) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	return l.exchange(ctx, func() error { return l.Engine.End(ctx, k, e) })
}

func (l *link) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if err := l.exchange(ctx, func() error { return nil }); err != nil {
		return func(yield func(lockkeeper.Status, error) bool) { yield(lockkeeper.Status{}, err) }
	}
	return l.Engine.List(ctx, q)
}

// Close keeps the engine open, because other links use it.
func (l *link) Close() error { return nil }

// newLink makes a link to the next handle.
func (w *world) newLink(change func(*link)) *link {
	l := &link{Engine: w.handle(), recorder: w.recorder}
	l.random.Rand = rand.New(rand.NewPCG(1, 1))
	if change != nil {
		change(l)
	}
	return l
}

// client makes a client over a link without faults. The suite closes it.
func (w *world) client(name string, options ...lockkeeper.ClientOption) *lockkeeper.Client {
	w.Helper()
	c, _ := w.clientAndLink(name, nil, options...)
	return c
}

// clientAndLink makes a client and its link. The suite restores the link before it closes the
// client.
func (w *world) clientAndLink(name string, change func(*link), options ...lockkeeper.ClientOption) (*lockkeeper.Client,
	*link) {
	w.Helper()
	l := w.newLink(change)
	clock := w.harness.Clock
	if clock == nil && w.harness.Bubble {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	all := []lockkeeper.ClientOption{
		lockkeeper.SessionTTL(w.longTTL()), lockkeeper.SessionLabel(lockkeeper.Label{As: name}),
	}
	if clock != nil {
		all = append(all, lockkeeper.BootClock(clock))
	}
	c := lockkeeper.New(l, append(all, options...)...)
	w.Cleanup(func() {
		l.cut.Store(false)
		if err := c.Close(); err != nil && !l.lossy {
			w.Errorf("closing client %s: %v", name, err)
		}
	})
	return c, l
}
