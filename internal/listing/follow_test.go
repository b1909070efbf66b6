package listing_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// source is an engine that a test changes.
type source struct {
	mu      sync.Mutex
	all     []lockkeeper.Status
	err     error // of every List
	deaf    error // of every List with Follow
	silent  bool  // List hangs until its context ends
	reads   int
	changed chan struct{} // closed at every change
}

func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// count returns how often all claims were read.
func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *source) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		for {
			s.mu.Lock()
			all, err, silent, changed := s.all, s.err, s.silent, s.changed
			if q.Follow && err == nil {
				err = s.deaf
			} else if !q.Follow {
				s.reads++
			}
			s.mu.Unlock()
			if silent && !q.Follow {
				<-ctx.Done()
				err = ctx.Err()
			}
			if err != nil {
				yield(lockkeeper.Status{}, err)
				return
			}
			for _, st := range all {
				if !yield(st, nil) {
					return
				}
			}
			if !q.Follow {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

var errGone = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "gone"}

// following runs Follow in a bubble, and returns the latest reading as text: "1 2", with "old: " if it
// has an error.
func following(t *testing.T, s *source) (latest func() string, err func() error) {
	t.Helper()
	s.changed = make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var mu sync.Mutex
	var text string
	var failed error
	began := time.Now()
	go func() {
		err := listing.Follow(ctx, s, lockkeeper.Query{}, func(r listing.Reading) error {
			mu.Lock()
			defer mu.Unlock()
			text = fmt.Sprintf("at %s:", r.At.Sub(began))
			if r.Err != nil {
				text = "old " + text
			}
			for _, st := range r.All {
				text += fmt.Sprintf(" %d", st.Ref.ID)
			}
			return nil
		})
		mu.Lock()
		failed = err
		mu.Unlock()
	}()
	synctest.Wait()
	read := func() string { mu.Lock(); defer mu.Unlock(); return text }
	return read, func() error { mu.Lock(); defer mu.Unlock(); return failed }
}

func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// A change is read at once, a burst of changes at most four times a second, and an engine without
// changes once in five seconds.
func TestFollowReadsAtChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{all: []lockkeeper.Status{claim(1, lockkeeper.Held, "a", "x")}}
		latest, _ := following(t, s)
		after(time.Second) // the changes with which the engine begins have been read
		s.set(func() { s.all = append(s.all, claim(2, lockkeeper.Waiting, "b", "x")) })
		synctest.Wait()
		if got := latest(); got != "at 1s: 1 2" {
			t.Errorf("after a change: %q", got)
		}
		before := s.count()
		for range 1000 {
			s.set(func() {})
			after(time.Millisecond)
		}
		if n := s.count() - before; n < 3 || n > 4 {
			t.Errorf("%d readings in a second of changes", n)
		}
		after(time.Second)
		before = s.count()
		after(20 * time.Second)
		if n := s.count() - before; n != 4 {
			t.Errorf("%d readings in 20 quiet seconds", n)
		}
	})
}

// An engine that can't notify of changes is read once a second.
func TestFollowPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{deaf: &lockkeeper.Error{Err: lockkeeper.ErrUnsupported}}
		latest, _ := following(t, s)
		after(3500 * time.Millisecond)
		s.set(func() { s.all = []lockkeeper.Status{claim(7, lockkeeper.Held, "a", "x")} })
		after(time.Second)
		if got := latest(); got != "at 4.25s: 7" && got != "at 4s: 7" {
			t.Errorf("a second after a change: %q", got)
		}
	})
}

// What is shown of an engine that can't be reached is marked as old, with the time of the last reading
// that succeeded, and nothing of it is left when the engine is back with other claims.
func TestFollowMarksOldState(t *testing.T) {
	for name, c := range map[string]struct {
		lose, find func(s *source)
		within     time.Duration
	}{
		"refused": {func(s *source) { s.err = errGone }, func(s *source) { s.err = nil }, 0},
		// The next reading begins after 5s at most, and takes 5s at most.
		"silent": {func(s *source) { s.silent = true }, func(s *source) { s.silent = false }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{all: []lockkeeper.Status{claim(1, lockkeeper.Held, "a", "x")}}
				latest, failed := following(t, s)
				after(time.Second)
				was := latest()
				s.set(func() { c.lose(s) })
				after(c.within)
				if got := latest(); got != "old "+was {
					t.Errorf("lost: %q, want %q as old", got, was)
				}
				after(time.Hour)
				if got := latest(); got != "old "+was {
					t.Errorf("an hour later: %q, want %q as old", got, was)
				}
				s.set(func() { c.find(s); s.all = []lockkeeper.Status{claim(2, lockkeeper.Held, "b", "y")} })
				after(7 * time.Second)
				if got := latest(); got[:3] == "old" || got[len(got)-3:] != ": 2" {
					t.Errorf("found again: %q", got)
				}
				if err := failed(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The first reading must succeed, and a refusal ends Follow at any time.
func TestFollowEndsWithRefusal(t *testing.T) {
	denied := &lockkeeper.Error{Err: lockkeeper.ErrDenied}
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []error{errGone, denied} {
			_, failed := following(t, &source{err: first})
			if err := failed(); !errors.Is(err, first) {
				t.Errorf("%v at first: %v", first, err)
			}
		}
		s := &source{}
		_, failed := following(t, s)
		after(time.Second)
		s.set(func() { s.err = denied })
		after(time.Second)
		if err := failed(); !errors.Is(err, denied) {
			t.Errorf("denied later: %v", err)
		}
	})
}

// A state that the engine shows as its last durable one is shown, with the engine's words.
func TestFollowShowsStaleState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Stale: time.Minute, Detail: "disk full"}}
		latest, failed := following(t, s)
		if got, err := latest(), failed(); err != nil || got != "old at 0s:" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Time alone makes no change, and Aged leaves the list as it is.
func TestAgedKeepsFingerprint(t *testing.T) {
	s := claim(1, lockkeeper.Waiting, "a", "x", 2)
	s.Left, s.Age, s.ETA = 10*time.Second, time.Second, time.Second
	s.Asked = &lockkeeper.Asked{Left: lockkeeper.Forever}
	all := []lockkeeper.Status{s}
	aged := listing.Aged(all, 3*time.Second)
	a := aged[0]
	got := fmt.Sprint(a.Age, a.Left, a.ETA, a.Asked.Left == lockkeeper.Forever, a.Blockers[0].Age)
	if got != "4s 7s 0s true 3s" {
		t.Errorf("aged by 3s: %s", got)
	}
	if all[0].Age != time.Second || all[0].Blockers[0].Age != 0 {
		t.Error("the list itself has changed")
	}
	if listing.Fingerprint(all) != listing.Fingerprint(aged) {
		t.Error("the fingerprint depends on time")
	}
	moved := s
	moved.Position++
	if listing.Fingerprint(all) == listing.Fingerprint([]lockkeeper.Status{moved}) {
		t.Error("the fingerprint does not depend on the position")
	}
}
