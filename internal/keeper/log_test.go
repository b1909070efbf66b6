package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// later calls do in a goroutine. It returns a function that reports whether do has returned, when
// everything else stands still.
func later(do func()) func() bool {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// TestNothingShowsBeforeItIsSafe: a call waits for the log if a caller may rely on its answer, and
// does not otherwise; notifications wait, too.
func TestNothingShowsBeforeItIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		ctx := t.Context()
		waits := func(what string, do func() error) {
			t.Helper()
			returned := later(func() {
				if err := do(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
			if returned() {
				t.Errorf("%s is answered before it is safe", what)
			}
			l.sync(-1)
			if !returned() {
				t.Errorf("%s is not answered though it is safe", what)
			}
		}
		atOnce := func(what string, do func() error) {
			t.Helper()
			if returned := later(func() {
				if err := do(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}); !returned() {
				t.Errorf("%s waits for the log", what)
				l.sync(-1)
			}
		}
		keys := map[string]lockkeeper.Key{}
		news := make(chan lockkeeper.Status, 16)
		attach := func(id string) func() error {
			return func() error {
				lease, err := k.Attach(ctx, lockkeeper.Session{ID: id, TTL: 10 * time.Second}, func(all []lockkeeper.Status) {
					for _, st := range all {
						news <- st
					}
				})
				keys[id] = lease.Key
				return err
			}
		}
		claims := func(id string, w lockkeeper.Want) func() error {
			return func() error { _, err := k.Claim(ctx, keys[id], w); return err }
		}
		ends := func(id string, e lockkeeper.Ending) func() error {
			return func() error { return k.End(ctx, keys[id], e) }
		}
		renew := func() error { _, err := k.Renew(ctx, keys["bob"]); return err }
		list := func() error {
			for range k.List(ctx, lockkeeper.Query{}) {
			}
			return nil
		}
		waits("attach", attach("ann"))
		waits("attach", attach("bob"))
		waits("a claim that is granted", claims("ann", want(1, "db")))
		waits("a claim that must wait", claims("bob", want(1, "db")))
		try := want(2, "db")
		try.Wait = 0
		waits("a claim that is refused", claims("bob", try))
		waits("a claim that is asked again", claims("ann", want(1, "db")))
		freeze := want(3, "other")
		freeze.Wait, freeze.Freeze = 0, time.Hour
		waits("a freeze", claims("ann", freeze))
		waits("a thaw", ends("ann", lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "other"}))
		waits("a revocation",
			ends("ann", lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "ann", ID: 1}}))
		<-news // ann is asked to yield
		atOnce("a renewal", renew)
		atOnce("a list of what is safe", list)

		seen := make(chan lockkeeper.Status, 16)
		go func() {
			for st, err := range k.List(ctx, lockkeeper.Query{Follow: true}) {
				if err == nil {
					seen <- st
				}
			}
		}()
		synctest.Wait()
		for len(seen) > 0 {
			<-seen
		}
		atOnce("a release", ends("ann", lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}))
		synctest.Wait()
		if len(news)+len(seen) > 0 {
			t.Errorf("%d statuses are told to sessions and %d to a follower before they are safe", len(news), len(seen))
		}
		waits("a renewal that tells of a grant", renew)
		if st := <-news; st.State != lockkeeper.Held || st.Ref.Session != "bob" {
			t.Errorf("told %v %v, want that bob holds", st.Ref, st.State)
		}
		for range 2 {
			<-seen
		}
		atOnce("a release", ends("bob", lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}))
		waits("a list", list)
		atOnce("leaving", ends("bob", lockkeeper.Ending{Kind: lockkeeper.Leave}))
	})
}

// TestLogFails: calls that wait end with an error, nothing becomes visible any more, and every call
// after it is refused.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		var err error
		var followed error
		waiting := later(func() { _, err = k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Minute}, nil) })
		following := later(func() {
			for _, err := range k.List(t.Context(), lockkeeper.Query{Follow: true}) {
				followed = err
			}
		})
		waiting()
		l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is gone"})
		if !waiting() || !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("the call that waited ends with %v, want unavailable", err)
		}
		if !following() || !errors.Is(followed, lockkeeper.ErrUnavailable) {
			t.Errorf("the follower, which would wait forever, ends with %v, want unavailable", followed)
		}
		if _, err := k.Renew(t.Context(), lockkeeper.Key{}); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a renewal afterwards: %v, want unavailable", err)
		}
	})
}

// TestHoldersAreNotifiedWhenTheLogFails: every session is notified that it may have missed changes,
// so that a holder renews at once and learns that it can't.
func TestHoldersAreNotifiedWhenTheLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		notified := make(chan []lockkeeper.Status, 4)
		for _, id := range []string{"ann", "bob"} {
			go k.Attach(t.Context(), lockkeeper.Session{ID: id, TTL: time.Minute},
				func(all []lockkeeper.Status) { notified <- all })
		}
		go k.Attach(t.Context(), lockkeeper.Session{ID: "eve", TTL: time.Minute}, nil)
		synctest.Wait()
		l.sync(-1)
		synctest.Wait()
		go k.Claim(t.Context(), lockkeeper.Key{Session: "ann", Epoch: 1}, want(1, "db"))
		synctest.Wait()
		if len(notified) > 0 {
			t.Fatalf("notified of %v before the log failed", <-notified)
		}
		l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is gone"})
		synctest.Wait()
		if len(notified) != 2 {
			t.Fatalf("%d sessions are notified, want 2", len(notified))
		}
		for range 2 {
			if all := <-notified; len(all) > 0 {
				t.Errorf("notified of %v, want that some may have been missed", all)
			}
		}
	})
}

// TestRefusedClaimWaitsForTheLog: a refusal that relies on an entry is answered when that is safe.
func TestRefusedClaimWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		go k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Minute}, nil)
		synctest.Wait()
		l.sync(-1)
		synctest.Wait()
		go k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Minute, Epoch: 1}, nil)
		synctest.Wait()
		returned := later(func() {
			_, err := k.Claim(t.Context(), lockkeeper.Key{Session: "ann", Epoch: 1}, want(1, "db"))
			if !errors.Is(err, lockkeeper.ErrSession) {
				t.Errorf("a claim with the key of before: %v, want ErrSession", err)
			}
		})
		if returned() {
			t.Error("a claim is refused because of a takeover that is not safe")
		}
		l.sync(-1)
		if !returned() {
			t.Error("the refusal is not answered though the takeover is safe")
		}
	})
}

// TestFollowerEndsWhenTheLogFails: a follower does not wait for changes that never become safe.
func TestFollowerEndsWhenTheLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		go k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Minute}, nil)
		synctest.Wait()
		l.sync(-1)
		var followed error
		following := later(func() {
			for _, err := range k.List(t.Context(), lockkeeper.Query{Follow: true}) {
				followed = err
			}
		})
		following()
		go k.Claim(t.Context(), lockkeeper.Key{Session: "ann", Epoch: 1}, want(1, "db"))
		synctest.Wait()
		l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is gone"})
		if !following() || !errors.Is(followed, lockkeeper.ErrUnavailable) {
			t.Errorf("the follower ends with %v, want unavailable", followed)
		}
	})
}

// TestLogNeverAnswers: the caller's context bounds its wait, and the answer says why.
func TestLogNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		returned := later(func() {
			_, err := k.Attach(ctx, lockkeeper.Session{ID: "ann", TTL: time.Minute}, nil)
			if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want unavailable and the context's end", err)
			}
		})
		if returned() {
			t.Error("answered before the context ended")
		}
		<-ctx.Done()
		if !returned() {
			t.Error("not answered when the context has ended")
		}
		l.refuse(true)
		if _, err := k.Attach(t.Context(), lockkeeper.Session{ID: "eve", TTL: time.Minute},
			nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("at the door: %v, want unavailable", err)
		}
	})
}

// TestRandomLog: whatever is done, and however late or broken the log is, nothing is
// safeChanges that is not safe, and the log makes the same table again.
func TestRandomLog(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(150, 5000)) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLog(t, seed) })
		}) {
			t.Fatal("replay: " + testmode.Replay(t, seed))
		}
	}
}

func randomLog(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	l := newSlowLog()
	k := logged(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	told := func(how string, all ...lockkeeper.Status) {
		safe := l.changes()
		for _, st := range all {
			if st.Change > safe {
				t.Errorf("%s tells change %d of %s (%v), safe is %d", how, st.Change, st.Ref, st.State, safe)
			}
		}
	}
	attached := func(epoch uint64) {
		if safe := l.epochs(); epoch > safe {
			t.Errorf("a refused attach tells epoch %d, safe is %d", epoch, safe)
		}
	}
	var running sync.WaitGroup
	for i := range 4 {
		u := &user{
			id:       fmt.Sprint("user", i%3),
			k:        k,
			random:   rand.New(rand.NewPCG(seed, uint64(10+i))),
			told:     told,
			attached: attached,
		}
		running.Go(func() {
			for range 40 {
				u.act(ctx)
			}
		})
	}
	running.Go(func() {
		for st, err := range k.List(ctx, lockkeeper.Query{Follow: true}) {
			if err == nil {
				told("following", st)
			}
		}
	})
	failAt := random.IntN(400)
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			if l.sync(random.IntN(4)); n == failAt {
				l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "broken at random"})
			}
		}
	})
	time.Sleep(2 * time.Minute)
	cancel()
	running.Wait()
	k.Close()
	compareReplay(t, k, l)
}

// compareReplay compares the keeper's table with one that is made by the log.
func compareReplay(t *testing.T, k *keeper.Keeper, l *slowLog) {
	replayed := table.New()
	for i := range l.entries {
		if _, err := replayed.Step(&l.entries[i]); err != nil {
			t.Fatalf("entry %d is refused at replay: %v", i, err)
		}
	}
	k.Snapshot(func(mine table.Snapshot) {
		pass := table.Command{At: mine.Counters.Now, Op: table.Pass}
		if _, err := replayed.Step(&pass); err != nil || len(replayed.Events()) > 0 {
			t.Errorf("after the last entry, time passing did something that is not in the log: %v %v", replayed.Events(), err)
		}
		theirs := replayed.Snapshot()
		// What is remembered no longer may still lie about.
		gone := func(r table.ClaimRecord) bool {
			return r.State == lockkeeper.Ended && r.Forget <= mine.Counters.Now && r.UnackedUntil <= mine.Counters.Now
		}
		mine.Claims = append([]table.ClaimRecord{}, slices.DeleteFunc(mine.Claims, gone)...)
		theirs.Claims = append([]table.ClaimRecord{}, slices.DeleteFunc(theirs.Claims, gone)...)
		for _, claims := range [][]table.ClaimRecord{mine.Claims, theirs.Claims} {
			for i := range claims {
				if claims[i].UnackedUntil <= mine.Counters.Now {
					claims[i].UnackedUntil = 0 // nor do ghosts haunt any more
				}
			}
		}
		if !reflect.DeepEqual(mine, theirs) {
			t.Errorf("the keeper's table is\n%+v\nand by replay\n%+v", mine, theirs)
		}
	})
}

// user sends random commands, and checks every status that it gets.
type user struct {
	id     string
	k      *keeper.Keeper
	random *rand.Rand
	told   func(how string, all ...lockkeeper.Status)
	key    lockkeeper.Key
	epoch  uint64
	last   uint64

	attached func(epoch uint64) // gets the epoch of another attach
}

func (u *user) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+u.random.IntN(2000))*time.Millisecond)
	defer cancel()
	time.Sleep(time.Duration(u.random.IntN(800)) * time.Millisecond)
	u.key.LowestOpen = u.last - min(u.last, uint64(u.random.IntN(6)))
	u.key.Acked = uint64(u.random.IntN(6))
	// Refusals and what the log fails are part of the game.
	switch p := u.random.IntN(20); {
	case p < 2 || u.key.Epoch == 0:
		s := lockkeeper.Session{
			ID:    u.id,
			TTL:   time.Duration(1+u.random.IntN(4)) * time.Second,
			Named: []uint64{u.last},
			Epoch: u.epoch,
		}
		if lease, err := u.k.Attach(ctx, s, func(all []lockkeeper.Status) { u.told("news", all...) }); err == nil {
			u.key, u.epoch = lease.Key, lease.Key.Epoch
			u.told("attach", lease.Claims...)
		} else if e := new(lockkeeper.Error); errors.As(err, &e) && e.Epoch != 0 {
			u.epoch = e.Epoch
			u.attached(e.Epoch)
		}
	case p < 6:
		if lease, err := u.k.Renew(ctx, u.key); err == nil {
			u.told("renew", lease.Claims...)
		} else if errors.Is(err, lockkeeper.ErrSession) {
			u.key.Epoch = 0
		}
	case p < 12:
		u.last++
		w := want(u.last, []lockkeeper.Path{"db", "db/a", "x"}[u.random.IntN(3)])
		w.Wait = time.Duration(u.random.IntN(3)) * time.Second
		w.Priority = u.random.IntN(3)
		w.Steal = lockkeeper.Steal(u.random.IntN(3))
		if w.Steal == lockkeeper.Take {
			w.After = time.Second
		}
		if st, err := u.k.Claim(ctx, u.key, w); err == nil {
			u.told("claim", st)
		}
	case p < 17:
		_ = u.k.End(ctx, u.key, lockkeeper.Ending{Kind: lockkeeper.Release,
			ID: u.last - min(u.last, uint64(u.random.IntN(4)))})
	case p < 18:
		ref := lockkeeper.Ref{Session: fmt.Sprint("user", u.random.IntN(4)), ID: 1 + uint64(u.random.IntN(9))}
		_ = u.k.End(ctx, u.key, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: ref, Force: u.random.IntN(2) == 0})
	default:
		for st, err := range u.k.List(ctx, lockkeeper.Query{}) {
			if err == nil {
				u.told("list", st)
			}
		}
	}
}
