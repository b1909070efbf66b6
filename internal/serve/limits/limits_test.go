package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func TestResourcesAreBoundedInAllAndOfEach(t *testing.T) {
	b := DefaultBounds()
	b.Total[Polls], b.Each[Polls] = 3, 2
	l := New(b)
	a, other := l.Identity("a"), l.Identity("b")
	for range 2 {
		if err := a.Take(Polls, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Take(Polls, 1); !errors.Is(err, lockkeeper.Quota) || !strings.Contains(err.Error(), "a has 2 long polls") {
		t.Errorf("a third poll of one identity: %v", err)
	}
	if err := other.Take(Polls, 1); err != nil {
		t.Error(err)
	}
	if err := other.Take(Polls, 1); !errors.Is(err, lockkeeper.Quota) ||
		!strings.Contains(err.Error(), "all together have 3") {
		t.Errorf("a fourth poll of all: %v", err)
	}
	a.Give(Polls, 1)
	if err := other.Take(Polls, 1); err != nil {
		t.Error(err)
	}
	everybody := New(b).Identity("") // the clients of an open server: only the total bounds them
	if err := everybody.Take(Polls, 3); err != nil {
		t.Error(err)
	}
}

// frameBounds are 8 bytes of frames for all, and 4 for each identity.
func frameBounds() Bounds {
	b := DefaultBounds()
	b.FrameBytes, b.FrameBytesEach = 8, 4
	return b
}

func TestRoomIsGivenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(frameBounds()).Identity("a")
		if err := i.TakeRoom(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 4)
		for n := range cap(got) {
			go func() {
				if err := i.TakeRoom(t.Context(), 4-n%2); err != nil { // a smaller one does not overtake
					t.Error(err)
				}
				got <- n
			}()
			synctest.Wait()
		}
		has := 4
		for n := range cap(got) {
			i.GiveRoom(has)
			if next := <-got; next != n {
				t.Errorf("room is given to %d before %d", next, n)
			}
			has = 4 - n%2
		}
	})
}

// An identity that has used up its share of the room blocks no other identity, and its next frame
// is refused after RoomTime.
func TestFullShareOfRoomHarmsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(frameBounds())
		a, b := l.Identity("a"), l.Identity("b")
		if err := a.TakeRoom(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		refusals := make(chan error, 3)
		for range cap(refusals) {
			go func() { refusals <- a.TakeRoom(t.Context(), 1) }()
		}
		synctest.Wait()
		began := time.Now()
		if err := b.TakeRoom(t.Context(), 4); err != nil || time.Since(began) > 0 {
			t.Errorf("another identity waits %s: %v", time.Since(began), err)
		}
		for range cap(refusals) {
			if err := <-refusals; !errors.Is(err, lockkeeper.ErrUnavailable) || time.Since(began) != RoomTime {
				t.Errorf("refused after %s: %v", time.Since(began), err)
			}
		}
		a.GiveRoom(4)
		if err := a.TakeRoom(t.Context(), 4); err != nil { // the waiters that gave up took no room
			t.Error(err)
		}
	})
}

func TestCancelledFrameTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(frameBounds()).Identity("a")
		if err := i.TakeRoom(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := i.TakeRoom(ctx, 4); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		i.GiveRoom(4)
		if err := i.TakeRoom(t.Context(), 4); err != nil {
			t.Error(err)
		}
	})
}

// from is a connection of an address, which records whether it was closed.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (f *from) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", f.address)
	if err != nil {
		panic(err)
	}
	return a
}

func (f *from) Close() error { f.closed = true; return nil }

func TestFullArrivalsEvictTheOldestOfTheBusiestAddress(t *testing.T) {
	for _, network := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"[2001:db8::%x]", "[2001:db8:1::%x]"}} {
		synctest.Test(t, func(t *testing.T) {
			as := NewArrivals(4)
			enter := func(n, i int) *from {
				c := &from{address: strings.ReplaceAll(network[n], "%x", fmt.Sprint(i+1)) + ":1"}
				if as.Enter(c, nil) == nil {
					t.Fatal("no slot")
				}
				return c
			}
			lone := enter(1, 0)
			time.Sleep(time.Second)
			var flood []*from
			for i := range 3 {
				flood = append(flood, enter(0, i))
				time.Sleep(time.Millisecond)
			}
			began := time.Now()
			second := enter(1, 1)
			if waited := time.Since(began); waited != ArrivalTime-3*time.Millisecond {
				t.Errorf("it waits for %s", waited)
			}
			if !flood[0].closed || flood[1].closed || lone.closed || second.closed {
				t.Errorf("%v %v: closed %v, %v, %v, %v", network, flood[0].address, flood[0].closed, flood[1].closed, lone.closed,
					second.closed)
			}
		})
	}
}

func TestArrivalThatLeavesMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := NewArrivals(1)
		first := as.Enter(&from{address: "192.0.2.1:1"}, nil)
		time.AfterFunc(time.Millisecond, first.Leave)
		began := time.Now()
		if as.Enter(&from{address: "192.0.2.2:1"}, nil) == nil || time.Since(began) != time.Millisecond {
			t.Errorf("it waits for %s", time.Since(began))
		}
		gone := make(chan struct{})
		close(gone)
		if as.Enter(&from{address: "192.0.2.3:1"}, gone) != nil {
			t.Error("it has a slot of a server that has ended")
		}
	})
}

// Two connections leave before a waiter runs, so that the second signal is lost. Both waiters enter
// at once, and evict no other connection.
func TestArrivalsThatLeaveTogetherMakeRoomForAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := NewArrivals(3)
		stays := &from{address: "192.0.2.1:1"}
		as.Enter(stays, nil)
		leaving := []*Arrival{
			as.Enter(&from{address: "192.0.2.2:1"}, nil),
			as.Enter(&from{address: "192.0.2.3:1"}, nil),
		}
		began := time.Now()
		var waiters sync.WaitGroup
		for range 2 {
			waiters.Go(func() { as.Enter(&from{address: "192.0.2.4:1"}, nil) })
		}
		synctest.Wait()
		as.mu.Lock() // as leave does, for both before a waiter runs
		as.all = slices.DeleteFunc(as.all, func(a *Arrival) bool { return slices.Contains(leaving, a) })
		as.announceRoom()
		as.mu.Unlock()
		waiters.Wait()
		if waited := time.Since(began); waited != 0 || stays.closed {
			t.Errorf("the waiters entered after %s, and the other connection is closed: %t", waited, stays.closed)
		}
	})
}

// claims counts a claim that may wait for the paths.
func claims(i *Identity, session string, id uint64, paths ...lockkeeper.Path) (*Session, error) {
	w := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever}
	for _, p := range paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
	}
	return i.Claiming(lockkeeper.Key{Session: session, Epoch: 1}, &w, &Quota{})
}

// ended performs an ending with that answer.
func ended(i *Identity, session string, k lockkeeper.Key, e lockkeeper.Ending, err error) {
	s, generation := i.Ending(session)
	i.Ended(s, generation, k, e, err)
}

// status returns the status of a claim of one path.
func status(session string, id, change uint64, state lockkeeper.State, path lockkeeper.Path) lockkeeper.Status {
	return lockkeeper.Status{
		Ref:    lockkeeper.Ref{Session: session, ID: id},
		State:  state,
		Change: change,
		Grants: []lockkeeper.Grant{{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}}},
	}
}

func TestWaitingClaimsOfOnePathAreBounded(t *testing.T) {
	b := DefaultBounds()
	b.WaitingPerPath = 2
	l := New(b)
	key := lockkeeper.Key{Session: "s", Epoch: 1}
	i, other := l.Identity("a"), l.Identity("b")
	for id := range uint64(2) {
		s, err := claims(i, "s", id+1, "hot", "cold")
		if err != nil {
			t.Fatal(err)
		}
		st := status("s", id+1, 1, lockkeeper.Waiting, "hot")
		s.Claimed(key, id+1, &st, nil)
	}
	_, err := claims(other, "s", 1, "lukewarm", "hot")
	var full *lockkeeper.Error
	if !errors.As(err, &full) || full.Path != "hot" || full.Reason != lockkeeper.Quota ||
		!strings.Contains(err.Error(), `2 claims wait for "hot"`) {
		t.Errorf("a third: %v", err)
	}
	if other.Used(Claims) != 0 || l.Used(Waiting) != 2 {
		t.Errorf("a refused claim counts: %d claims; %d wait", other.Used(Claims), l.Used(Waiting))
	}
	w := lockkeeper.Want{ID: 2, Targets: []lockkeeper.Target{{Path: "hot"}}}
	if _, err := other.Claiming(key, &w, &Quota{}); err != nil { // it does not wait
		t.Errorf("a claim that does not wait: %v", err)
	}
	i.Notified("s", []lockkeeper.Status{status("s", 1, 2, lockkeeper.Held, "hot")})
	if _, err := claims(other, "s", 3, "hot"); err != nil {
		t.Errorf("after a grant: %v", err)
	}
	ended(i, "s", key, lockkeeper.Ending{Kind: lockkeeper.Leave}, nil)
	ended(other, "s", key, lockkeeper.Ending{Kind: lockkeeper.Leave}, nil)
	if s := l.queues.shard("hot"); len(s.of) != 0 || l.Used(Claims) != 0 {
		t.Errorf("left: %v, %d claims", s.of, l.Used(Claims))
	}
}

func TestClaimsOfOneSessionAndIdentityAreBounded(t *testing.T) {
	b := DefaultBounds()
	b.SessionClaims, b.Each[Claims] = 2, 3
	i := New(b).Identity("a")
	for id := range uint64(2) {
		if _, err := claims(i, "s", id+1, "p"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := claims(i, "s", 3, "p"); !errors.Is(err, lockkeeper.Quota) ||
		!strings.Contains(err.Error(), `session "s" has 2 claims`) {
		t.Errorf("a third claim of a session: %v", err)
	}
	if _, err := claims(i, "s", 2, "p"); err != nil {
		t.Errorf("a repetition: %v", err)
	}
	if _, err := claims(i, "other", 1, "p"); err != nil {
		t.Errorf("a claim of another session: %v", err)
	}
	if _, err := claims(i, "third", 1, "p"); !errors.Is(err, lockkeeper.Quota) ||
		!strings.Contains(err.Error(), "a has 3 claims") {
		t.Errorf("a fourth claim of an identity: %v", err)
	}
	w := lockkeeper.Want{ID: 9, Targets: []lockkeeper.Target{{Path: "p"}}}
	own := &Quota{Claims: 5, SessionClaims: 3}
	if _, err := i.Claiming(lockkeeper.Key{Session: "s", Epoch: 1}, &w, own); err != nil {
		t.Errorf("a quota of its own does not count: %v", err)
	}
	ended(i, "s", lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}, nil)
	ended(i, "s", lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 9}, nil)
	if _, err := claims(i, "s", 10, "p"); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

func TestUndeliveredStatusesAreBoundedButForAFirstList(t *testing.T) {
	b := DefaultBounds()
	b.Each[Undelivered], b.Total[Undelivered] = 10, 1000
	l := New(b)
	i := l.Identity("a")
	if !i.Keep(500) || i.Keep(1) {
		t.Error("not one list of any length, and no more")
	}
	i.Keep(-500)
	if !i.Keep(4) || !i.Keep(6) || i.Keep(1) {
		t.Error("not 10 statuses of several lists, and no more")
	}
	i.Keep(-10)
	if n := l.Used(Undelivered); n != 0 {
		t.Errorf("%d statuses are left", n)
	}
}
