package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// claims makes one session hold n paths.
func claims(p *peer, n int) {
	epoch := p.attach("many")
	for id := range uint64(n) {
		p.held("many", epoch, id+1, fmt.Sprintf("path/%04d", id))
	}
}

// listed reads until the list has sent n statuses or has ended.
func listed(p *peer, id uint64, n int) (got int, ended bool) {
	p.t.Helper()
	for got < n && !ended {
		f, err := p.frame()
		if err != nil {
			p.t.Fatal(err)
		}
		for _, m := range f.GetReplies() {
			if m.GetCall() == id && m.GetMore() {
				got++
			} else if m.GetCall() == id {
				ended = true
			}
		}
	}
	return got, ended
}

// A list sends as many statuses as it has credit for, and no more.
func TestListWaitsForCredit(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	claims(p, 10)
	id := p.ask(&wire.Request{List: &wire.Query{Credit: 3}})
	if n, ended := listed(p, id, 3); n != 3 || ended {
		t.Fatalf("%d statuses arrived, ended: %t", n, ended)
	}
	p.answered(p.ask(&wire.Request{Renew: true})) // a status without credit would come before this
	if p.replies[id] != nil && p.replies[id].GetStatus().GetId() > 3 {
		t.Error("more comes than there is credit for")
	}
	p.send(&wire.ClientFrame{Flows: []*wire.Flow{{Call: id, Credit: 4}, {Call: id, Credit: 100}, {Call: 999, Credit: 1}}})
	if n, ended := listed(p, id, 8); n != 7 || !ended {
		t.Errorf("%d more come, ended: %t", n, ended)
	}
}

// A list that its client stops ends, and so does one whose connection ends.
func TestStoppedListEnds(t *testing.T) {
	s, address := startMemory(t)
	p := greeted(t, address)
	claims(p, 3)
	id := p.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 100}})
	if n, ended := listed(p, id, 3); n != 3 || ended {
		t.Fatalf("%d statuses arrived, ended: %t", n, ended)
	}
	p.send(&wire.ClientFrame{Flows: []*wire.Flow{{Call: id, Stop: true}, {Call: 77, Stop: true}}})
	if n, ended := listed(p, id, 1); n != 0 || !ended {
		t.Errorf("a stopped list sends %d, ended: %t", n, ended)
	}
	p.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 1}})
	p.net.Close()
	s.ended.Wait() // the connection ends although its list waits for credit and changes
}

// A connection may have a bounded number of lists; one more is refused and harms nothing.
func TestListsAreBounded(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	for range maxLists {
		p.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 1}})
	}
	if err := p.answered(p.ask(&wire.Request{List: &wire.Query{}})).GetError().Read(); !errors.Is(err, lockkeeper.Quota) {
		t.Errorf("one list too many: %v", err)
	}
	p.attach("still here")
	p.last-- // the number of a list that runs
	p.send(&wire.ClientFrame{Requests: []*wire.Request{{Call: 1, List: &wire.Query{Credit: 1}}}})
	p.over(lockkeeper.ErrInvalid)
}

// Lists of everything are counted over all connections, because each keeps a copy; lists of one claim
// or session are not.
func TestBroadListsAreBounded(t *testing.T) {
	s, address := startMemory(t)
	hog, p := greeted(t, address), greeted(t, address)
	epoch := p.attach("me")
	p.held("me", epoch, 1, "a")
	for range limits.DefaultBounds().Total[limits.BroadLists] {
		hog.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 1}})
	}
	hog.attach("hog") // so its lists have been begun
	if err := p.answered(p.ask(&wire.Request{List: &wire.Query{Meets: "a", Credit: 9}})).GetError().Read(); !errors.Is(err,
		lockkeeper.Quota) {
		t.Errorf("one list of everything too many: %v", err)
	}
	for _, narrow := range []*wire.Query{{Ref: &wire.Ref{Session: "me", Id: 1}, Credit: 9}, {Session: "me", Credit: 9}} {
		if n, ended := listed(p, p.ask(&wire.Request{List: narrow}), 2); n != 1 || !ended {
			t.Errorf("%v: %d statuses, ended: %t", narrow, n, ended)
		}
	}
	hog.net.Close()
	for s.gate.Ledger().Used(limits.BroadLists) > 0 {
		runtime.Gosched()
	}
	if n, ended := listed(p, p.ask(&wire.Request{List: &wire.Query{Credit: 9}}), 2); n != 1 || !ended {
		t.Errorf("when there is room again: %d statuses, ended: %t", n, ended)
	}
}

// A client that reads nothing gets no answers, is notified of missed hints later, and delays nobody
// else.
func TestSlowReaderMissesHints(t *testing.T) {
	s, address := startMemory(t)
	holder, waiter := greeted(t, address), greeted(t, address)
	if err := waiter.net.(interface{ SetReadBuffer(int) error }).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	mine, its := holder.attach("holder"), waiter.attach("waiter")
	note := fmt.Sprintf("%0512d", 7)
	// Each revision of a claim that is asked to yield is a hint to its holder: here
	// they come by the thousand, and are not read.
	waiter.held("waiter", its, 1, "a")
	var sent int
	for left := 100; left > 0; { // rounds, once hints are missed
		if misses(s) {
			left--
		} else if sent > 100_000 {
			t.Fatal("none of 100,000 hints is missed")
		}
		id := uint64(sent/2 + 1)
		holder.net.SetDeadline(time.Now().Add(patience))
		m := holder.answered(holder.ask(&wire.Request{Key: &wire.Key{Session: "holder", Epoch: mine}, Claim: &wire.Want{
			Id: id, Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}}, Wait: -1,
			Priority: 1, Steal: wire.Steal_STEAL_ASK, Note: note, Link: note,
		}}))
		if m.GetError() != nil {
			t.Fatal(m.GetError().Read())
		}
		holder.release("holder", mine, id)
		sent += 2
	}
	waiter.net.SetDeadline(time.Now().Add(patience))
	waiter.until("waiting for the notice of missed hints", func() bool { return waiter.missed })
	if len(waiter.changed) >= sent {
		t.Errorf("all %d hints arrived", sent)
	}
	waiter.release("waiter", its, 1)
}

// misses reports whether a client of s has missed hints and was not notified yet.
func misses(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Lock()
		missed := c.missed
		c.Unlock()
		if missed {
			return true
		}
	}
	return false
}

// A list that the end of the server cuts short ends with an error.
func TestCutListIsNotComplete(t *testing.T) {
	s, address := startMemory(t)
	p := greeted(t, address)
	claims(p, 10)
	part := p.ask(&wire.Request{List: &wire.Query{Credit: 3}})
	follows := p.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 10}})
	p.until("both lists have begun", func() bool { return p.replies[part] != nil && p.replies[follows] != nil })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go s.Shutdown(ctx)
	for _, id := range []uint64{part, follows} {
		p.until("the end of a list", func() bool { return !p.replies[id].GetMore() })
		if m := p.replies[id].GetError(); m == nil || !errors.Is(m.Read(), lockkeeper.ErrUnavailable) {
			t.Errorf("a list that was cut ends with %v", m)
		}
	}
}
