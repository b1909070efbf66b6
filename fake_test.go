package lockkeeper_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const ttl = 30 * time.Second

// fake is an engine that the test controls. It grants at once unless wait is set, records every
// call, and can lose requests, answers and hints.
type fake struct {
	g lockkeeper.Guarantees

	mu      sync.Mutex
	calls   []string // in order: "claim 1", "release 1", ...
	times   []time.Time
	named   []uint64 // of the latest Attach
	lapses  []lockkeeper.Lapse
	wants   map[uint64][]lockkeeper.Want
	claims  map[uint64]*lockkeeper.Status
	until   map[uint64]time.Time // when a claim that was asked to yield ends
	since   map[uint64]time.Time // when it was granted
	key     lockkeeper.Key
	open    bool // the session is open
	notify  func([]lockkeeper.Status)
	wait    bool      // new claims wait
	change  uint64    //
	renewed time.Time // when the session was given its TTL
	// runs before the n-th call of this text, which is lost if it returns an error
	loseRequest func(ctx context.Context, call string, n int) error
	// runs after it: the answer is lost if it returns an error
	loseAnswer func(ctx context.Context, call string, n int) error
	outage     error
}

// Outage implements lockkeeper.OutageReporter.
func (f *fake) Outage() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outage
}

func newFake() *fake {
	return &fake{
		g:      lockkeeper.Guarantees{Name: "fake", Features: lockkeeper.TableFeatures, Reach: lockkeeper.OnNetwork},
		claims: map[uint64]*lockkeeper.Status{}, wants: map[uint64][]lockkeeper.Want{},
		until: map[uint64]time.Time{}, since: map[uint64]time.Time{},
	}
}

var errCut = errors.New("connection reset")

// cut loses every request from now on, as a reset connection does.
func cut(context.Context, string, int) error { return errCut }

// swallow loses every request without an error, as a dead connection does.
func swallow(ctx context.Context, _ string, _ int) error { <-ctx.Done(); return ctx.Err() }

// first loses the first request, or the answer, of the call with that name.
func first(call string) func(context.Context, string, int) error {
	return func(_ context.Context, c string, n int) error {
		if c == call && n == 1 {
			return errCut
		}
		return nil
	}
}

// do records a call and carries it out, unless it gets lost.
func (f *fake) do(ctx context.Context, call string, apply func() error) error {
	f.mu.Lock()
	f.calls, f.times = append(f.calls, call), append(f.times, time.Now())
	n := f.countLocked(call)
	loseRequest, loseAnswer := f.loseRequest, f.loseAnswer
	f.mu.Unlock()
	if loseRequest != nil {
		if err := loseRequest(ctx, call, n); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := apply()
	f.mu.Unlock()
	if loseAnswer != nil && err == nil {
		err = loseAnswer(ctx, call, n)
	}
	return err
}

func (f *fake) countLocked(call string) int {
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countLocked(call)
}

func (f *fake) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, ", ")
}

func (f *fake) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) Guarantees() lockkeeper.Guarantees { return f.g }

func (f *fake) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (l lockkeeper.Lease,
	err error) {
	err = f.do(ctx, "attach", func() error {
		if err := s.Check(f.g.NoExpiry); err != nil {
			return err
		}
		if f.open && s.Epoch != f.key.Epoch {
			return &lockkeeper.Error{Err: lockkeeper.ErrSession, Epoch: f.key.Epoch}
		}
		f.key, f.open = lockkeeper.Key{Session: s.ID, Epoch: f.key.Epoch + 1}, true
		f.named, f.notify, f.renewed = s.Named, notify, time.Now()
		for id := range f.claims {
			if !slices.Contains(s.Named, id) {
				f.endLocked(id, lockkeeper.Superseded)
			}
		}
		l = lockkeeper.Lease{Key: f.key, TTL: s.TTL}
		return nil
	})
	return l, err
}

func (f *fake) Renew(ctx context.Context, k lockkeeper.Key) (l lockkeeper.Lease, err error) {
	err = f.do(ctx, "renew", func() error {
		if k.Epoch != f.key.Epoch {
			return lockkeeper.ErrSession
		}
		f.renewed = time.Now()
		l = lockkeeper.Lease{Key: f.key, TTL: ttl}
		if f.g.NoExpiry {
			l.TTL = 0
		}
		for id := range f.claims {
			l.Claims = append(l.Claims, f.statusLocked(id))
		}
		return nil
	})
	return l, err
}

func (f *fake) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (s lockkeeper.Status, err error) {
	call := fmt.Sprintf("claim %d", w.ID)
	if w.Revision > 0 {
		call = fmt.Sprintf("amend %d %s p%d", w.ID, w.Targets[0].Mode, w.Priority)
	}
	err = f.do(ctx, call, func() error {
		if k.Epoch != f.key.Epoch {
			return lockkeeper.ErrSession
		}
		f.wants[w.ID] = append(f.wants[w.ID], w)
		if f.claims[w.ID] == nil {
			f.claims[w.ID] = &lockkeeper.Status{
				Ref:      lockkeeper.Ref{Session: k.Session, ID: w.ID},
				State:    lockkeeper.Waiting,
				Inside:   w.Inside,
				Revision: w.Revision,
			}
			f.setTargets(w)
			f.touch(w.ID)
			if !f.wait {
				f.grantLocked(w.ID)
			}
		} else if st := f.claims[w.ID]; st.State != lockkeeper.Ended && w.Revision > st.Revision {
			f.amendLocked(st, w)
		}
		s = f.statusLocked(w.ID)
		return nil
	})
	return s, err
}

func (f *fake) setTargets(w lockkeeper.Want) {
	st := f.claims[w.ID]
	st.Grants = nil
	for _, t := range w.Targets {
		st.Grants = append(st.Grants, lockkeeper.Grant{Target: t})
	}
}

// amendLocked converts and raises; an upgrade waits if new claims do.
func (f *fake) amendLocked(st *lockkeeper.Status, w lockkeeper.Want) {
	st.Revision, st.Priority, st.Reason = w.Revision, w.Priority, lockkeeper.NoReason
	upgrade := w.Targets[0].Mode == lockkeeper.ModeExclusive && st.Grants[0].Mode == lockkeeper.ModeShared
	st.Converting = upgrade && f.wait
	if !st.Converting {
		f.setTargets(w)
	}
	if upgrade && !st.Converting {
		st.Fence = f.change + 1
	}
	f.touch(st.Ref.ID)
}

func (f *fake) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	call := fmt.Sprintf("release %d", e.ID)
	switch e.Kind {
	case lockkeeper.Leave:
		call = "leave"
	case lockkeeper.Lapsed:
		call = fmt.Sprintf("lapsed %d", e.Lapse.ID)
	}
	return f.do(ctx, call, func() error {
		switch {
		case k.Epoch != f.key.Epoch:
			return lockkeeper.ErrSession
		case e.Kind == lockkeeper.Leave:
			f.key.Epoch++
			f.open = false
			for id := range f.claims {
				f.endLocked(id, lockkeeper.Released)
			}
		case e.Kind == lockkeeper.Lapsed:
			f.lapses = append(f.lapses, e.Lapse)
			f.endLocked(e.Lapse.ID, e.Lapse.Reason)
		case f.claims[e.ID] == nil:
			return lockkeeper.ErrNotHeld
		default:
			f.endLocked(e.ID, lockkeeper.Released)
		}
		return nil
	})
}

func (f *fake) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		var all []lockkeeper.Status
		err := f.do(ctx, "list", func() error {
			for id := range f.claims {
				all = append(all, f.statusLocked(id))
			}
			return nil
		})
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		for _, s := range all {
			if (q.Ref == lockkeeper.Ref{} || q.Ref == s.Ref) && !yield(s, nil) {
				return
			}
		}
	}
}

func (f *fake) Close() error {
	return f.do(background, "close", func() error { return nil })
}

func (f *fake) touch(id uint64) {
	f.change++
	f.claims[id].Change = f.change
}

func (f *fake) endLocked(id uint64, why lockkeeper.Reason) {
	if st := f.claims[id]; st.State != lockkeeper.Ended {
		st.State, st.Reason, st.Asked = lockkeeper.Ended, why, nil
		f.touch(id)
	}
}

func (f *fake) grantLocked(id uint64) {
	st := f.claims[id]
	st.State, f.since[id] = lockkeeper.Held, time.Now()
	f.touch(id)
	st.Fence = f.change
}

func (f *fake) statusLocked(id uint64) lockkeeper.Status {
	st := *f.claims[id]
	if at, ok := f.since[id]; ok {
		st.Age = time.Since(at)
	}
	if st.Asked != nil {
		asked := *st.Asked
		if asked.Left != lockkeeper.Forever {
			asked.Left = time.Until(f.until[id])
		}
		st.Asked = &asked
	}
	return st
}

// news changes a claim, and sends a hint of the change unless quiet is set.
func (f *fake) news(id uint64, quiet bool, change func(st *lockkeeper.Status)) lockkeeper.Status {
	f.mu.Lock()
	change(f.claims[id])
	f.touch(id)
	s, told := f.statusLocked(id), f.notify
	f.mu.Unlock()
	if !quiet {
		told([]lockkeeper.Status{s})
	}
	return s
}

// setBack brings an earlier state of a claim back, which it returns. It sends no hint.
func (f *fake) setBack(id uint64, change func(st *lockkeeper.Status)) lockkeeper.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims[id].Change -= 50
	change(f.claims[id])
	return f.statusLocked(id)
}

func (f *fake) grant(id uint64, quiet bool) {
	f.news(id, quiet, func(*lockkeeper.Status) { f.grantLocked(id) })
}

// ask asks the holder to yield within d.
func (f *fake) ask(id uint64, d time.Duration, quiet bool) lockkeeper.Status {
	return f.news(id, quiet, func(st *lockkeeper.Status) {
		f.until[id] = time.Now().Add(d)
		label := lockkeeper.Label{As: "thief"}
		st.Asked = &lockkeeper.Asked{Reason: lockkeeper.Stolen, Left: d, EndsAt: time.Hour + d, Label: label}
	})
}

func (f *fake) state(id uint64) lockkeeper.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims[id] == nil {
		return 0
	}
	return f.claims[id].State
}

// bubble runs a test with a client on a fake, in fake time.
func bubble(t *testing.T, test func(t *testing.T, f *fake, c *lockkeeper.Client), options ...lockkeeper.ClientOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		f := newFake()
		clock := lockkeeper.BootClock(func() time.Duration { return time.Since(start) })
		c := lockkeeper.New(f, append([]lockkeeper.ClientOption{clock}, options...)...)
		test(t, f, c)
		f.with(func() { f.loseRequest, f.loseAnswer = nil, nil })
		c.Close()
	})
}

// must returns the hold of a call that has to succeed.
func must(t *testing.T) func(h *lockkeeper.Hold, err error) *lockkeeper.Hold {
	return func(h *lockkeeper.Hold, err error) *lockkeeper.Hold {
		t.Helper()
		if err != nil {
			t.Fatalf("got %v, want a hold", err)
		}
		return h
	}
}

// wantErr checks that err matches all of these, and never both ErrNotAcquired and ErrUnavailable.
func wantErr(t *testing.T, err error, all ...error) {
	t.Helper()
	for _, one := range all {
		if !errors.Is(err, one) {
			t.Errorf("got error %v, want it to be %v", err, one)
		}
	}
	if errors.Is(err, lockkeeper.ErrNotAcquired) && errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("error %v is both taken and unreachable", err)
	}
}

// outcome is the result of a call.
type outcome struct {
	hold *lockkeeper.Hold
	err  error
}

// began starts a call in the background and returns a channel that receives its outcome.
func began(call func() (*lockkeeper.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		h, err := call()
		done <- outcome{h, err}
	}()
	return done
}
