package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// newTest returns a keeper in a synctest bubble, and a session that lives as long as it.
func newTest(t *testing.T) (*Keeper, lockkeeper.Key) {
	start := time.Now()
	g := lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures, NoExpiry: true}
	k := New(g, func() time.Duration { return time.Since(start) })
	t.Cleanup(func() { k.Close() })
	lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: "ann"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k, lease.Key
}

// ask makes a claim that may wait.
func ask(t *testing.T, k *Keeper, key lockkeeper.Key, id uint64, paths ...lockkeeper.Path) {
	t.Helper()
	w := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever}
	for _, path := range paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive})
	}
	if _, err := k.Claim(t.Context(), key, w); err != nil {
		t.Fatal(err)
	}
}

// TestArrivalsDoNotCountALongQueue: a claim that joins a long queue does not pay for its length while the
// queue is watched, whether the watcher reads or not, and wants evidence or not.
func TestArrivalsDoNotCountALongQueue(t *testing.T) {
	one, two := []lockkeeper.Path{"x"}, []lockkeeper.Path{"x", "y"}
	nobody := func(*lockkeeper.Status) bool { return false }
	for name, c := range map[string]struct {
		query  lockkeeper.Query
		reads  bool
		length uint64
		paths  []lockkeeper.Path
		looks  int
	}{
		"brief":                       {lockkeeper.Query{Follow: true, Brief: true}, true, 40_000, one, 0},
		"unread":                      {lockkeeper.Query{Follow: true}, false, 40_000, one, 0},
		"with evidence":               {lockkeeper.Query{Follow: true}, true, 40_000, one, 80_000},
		"that it may not see":         {lockkeeper.Query{Follow: true, Sees: nobody}, true, 4_000, two, 0},
		"with evidence of many paths": {lockkeeper.Query{Follow: true}, true, 4_000, two, mostLooks + 4_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, ann := newTest(t)
				ask(t, k, ann, 1, c.paths...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				heard := 0
				go func() {
					for _, err := range k.List(ctx, c.query) {
						if heard++; err != nil || !c.reads {
							<-ctx.Done()
						}
					}
				}()
				synctest.Wait()
				counted := func() int {
					k.mu.Lock()
					defer k.mu.Unlock()
					return k.table.Counted()
				}
				before := counted()
				for id := range c.length {
					ask(t, k, ann, id+2, c.paths...)
				}
				if looks := counted() - before; looks > c.looks {
					t.Errorf("while %d claims came, %d were looked at to tell places, want %d at most", c.length, looks, c.looks)
				}
				if synctest.Wait(); (heard > 0) != (c.query.Sees == nil) {
					t.Errorf("the watcher hears of %d changes", heard)
				}
			})
		})
	}
}

// TestWatchersShareChanges: what several watchers have not read is kept once; one that has too
// much of it ends, and keeps nothing from then on.
func TestWatchersShareChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, ann := newTest(t)
		ask(t, k, ann, 1, "x")
		errs, read := make(chan error, 2), make(chan struct{})
		for range cap(errs) {
			go func() {
				for _, err := range k.List(t.Context(), lockkeeper.Query{Session: "ann", Follow: true, Brief: true}) {
					if err != nil {
						errs <- err
						return
					}
					<-read
				}
			}()
		}
		synctest.Wait()
		var all []*watcher
		for w := range k.watchers.All() {
			all = append(all, w)
		}
		for id := range uint64(mostPending) {
			ask(t, k, ann, id+2, lockkeeper.Path(fmt.Sprint("y/", id)))
		}
		if !slices.Equal(all[0].pending, all[1].pending) || len(all[0].pending) != mostPending {
			t.Errorf("two watchers of one session keep %d and %d changes, want the same %d",
				len(all[0].pending), len(all[1].pending), mostPending)
		}
		for range 100_000 {
			again := change{about: all[0].pending[len(all[0].pending)-1].about}
			all[0].put(&again, k.clock())
		}
		if n := cap(all[0].pending); n > 8*mostPending {
			t.Errorf("a claim that changed again and again takes part in %d places for %d claims", n, mostPending)
		}
		time.Sleep(2 * readTime) // of the bubble's time
		ask(t, k, ann, mostPending+2, "z")
		if k.watchers.Len() != 0 || all[0].pending != nil || all[0].positions != nil {
			t.Error("a watcher that is much too slow is kept")
		}
		close(read)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("it ends with %v, want ErrUnavailable", err)
			}
		}
	})
}

// TestReaderHearsOfAllThatOneStepEnds: a watcher that reads is not too slow for a step that ends
// more claims than are kept for one that does not.
func TestReaderHearsOfAllThatOneStepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, ann := newTest(t)
		const claims = 2 * mostPending
		for id := range uint64(claims) {
			ask(t, k, ann, id+1, lockkeeper.Path(fmt.Sprint("x/", id)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ends := 0
		go func() {
			for st, err := range k.List(ctx, lockkeeper.Query{Follow: true, Brief: true}) {
				if err != nil {
					t.Error(err)
				}
				if st.State == lockkeeper.Ended && st.Reason == lockkeeper.Released {
					ends++
				}
			}
		}()
		time.Sleep(time.Hour) // of the bubble's time: it has nothing to read
		if err := k.End(ctx, ann, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); ends != claims {
			t.Errorf("it hears of %d ends, want %d", ends, claims)
		}
	})
}
