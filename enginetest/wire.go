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

// wire is what lies between one client and the engine. It can be cut, can lose
// questions and answers, and can deliver everything twice. It records who was
// answered that he waits: only the engine's answer begins a wait.
type wire struct {
	lockkeeper.Engine
	recorder *history.Recorder
	cut      atomic.Bool
	mute     atomic.Bool // it loses the answers to claims, and nothing else
	far      bool        // it leads out of this process, so that the client expects calls to fail
	twice    bool
	dropping bool         // it loses one in five calls, before or after they were done
	hook     func(moment) // called at moments of Claim and of hints
	random   struct {
		sync.Mutex
		*rand.Rand
	}
}

// moment is a point on the way of a claim at which its caller may give up.
type moment string

const (
	beforeClaim moment = "before the claim arrives"
	afterClaim  moment = "before its answer arrives"
	beforeHint  moment = "before a hint arrives"
	afterHint   moment = "after a hint has arrived"
)

var moments = []moment{beforeClaim, afterClaim, beforeHint, afterHint}

func (l *wire) at(m moment) {
	if l.hook != nil {
		l.hook(m)
	}
}

// recorded marks the notes of claims that are in the history.
const recorded = "recorded "

var errCut = errors.New("the wire is cut")

func (l *wire) roll() int {
	if !l.dropping {
		return 9
	}
	l.random.Lock()
	defer l.random.Unlock()
	return l.random.IntN(10)
}

// exchange does one call, as the wire lets it.
func (l *wire) exchange(ctx context.Context, do func() error) error {
	lost := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errCut}
	fate := l.roll()
	if l.cut.Load() || fate == 0 {
		return lost
	}
	err := do()
	if l.twice {
		err = do()
	}
	if l.cut.Load() || fate == 1 {
		return lost
	}
	return err
}

// Guarantees says of an engine behind a bad wire that it is not in this process,
// so that the client expects calls to fail.
func (l *wire) Guarantees() lockkeeper.Guarantees {
	g := l.Engine.Guarantees()
	if l.far || l.dropping || l.twice {
		g.Reach = lockkeeper.OnNetwork
	}
	return g
}

func (l *wire) Attach(ctx context.Context, s lockkeeper.Session,
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
			return nil // its copy is refused, and that answer is for nobody (R19)
		}
		lease, attached = answer, err == nil
		return err
	})
	return lease, err
}

func (l *wire) Renew(ctx context.Context, k lockkeeper.Key) (lease lockkeeper.Lease, err error) {
	err = l.exchange(ctx, func() (err error) {
		lease, err = l.Engine.Renew(ctx, k)
		return err
	})
	return lease, err
}

func (l *wire) Claim(ctx context.Context, k lockkeeper.Key, want lockkeeper.Want) (s lockkeeper.Status, err error) {
	l.at(beforeClaim)
	err = l.exchange(ctx, func() (err error) {
		s, err = l.Engine.Claim(ctx, k, want)
		return err
	})
	if l.mute.Load() {
		return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errCut}
	}
	if claim, ok := strings.CutPrefix(want.Note, recorded); ok && err == nil && s.State == lockkeeper.Waiting &&
		want.Revision == 0 {
		l.recorder.Add(history.Event{Kind: history.Waits, Client: want.As, Claim: claim})
	}
	l.at(afterClaim)
	return s, err
}

func (l *wire) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	return l.exchange(ctx, func() error { return l.Engine.End(ctx, k, e) })
}

func (l *wire) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if err := l.exchange(ctx, func() error { return nil }); err != nil {
		return func(yield func(lockkeeper.Status, error) bool) { yield(lockkeeper.Status{}, err) }
	}
	return l.Engine.List(ctx, q)
}

// Close leaves the engine to the others who use it.
func (l *wire) Close() error { return nil }

// wireTo makes a wire to the next handle.
func (w *world) wireTo(change func(*wire)) *wire {
	l := &wire{Engine: w.handle(), recorder: w.recorder}
	l.random.Rand = rand.New(rand.NewPCG(1, 1))
	if change != nil {
		change(l)
	}
	return l
}

// client makes a client over a good wire. The suite closes it.
func (w *world) client(name string, options ...lockkeeper.ClientOption) *lockkeeper.Client {
	w.Helper()
	c, _ := w.wired(name, nil, options...)
	return c
}

// wired makes a client, and its wire, which is mended before the client is closed.
func (w *world) wired(name string, change func(*wire), options ...lockkeeper.ClientOption) (*lockkeeper.Client, *wire) {
	w.Helper()
	l := w.wireTo(change)
	clock := w.harness.Clock
	if clock == nil && w.harness.Bubble {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	all := []lockkeeper.ClientOption{lockkeeper.SessionTTL(longTTL), lockkeeper.SessionLabel(lockkeeper.Label{As: name})}
	if clock != nil {
		all = append(all, lockkeeper.BootClock(clock))
	}
	c := lockkeeper.New(l, append(all, options...)...)
	w.Cleanup(func() {
		l.cut.Store(false)
		if err := c.Close(); err != nil && !l.dropping {
			w.Errorf("closing client %s: %v", name, err)
		}
	})
	return c, l
}
