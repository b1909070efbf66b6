package attached

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// recorder returns a Notify that adds name to the list.
func recorder(to *[]string, name string) Notify {
	return func([]lockkeeper.Status) { *to = append(*to, name) }
}

// notified returns the names of the recorders that are notified of a session.
func notified(s *Sessions[int], id string, names *[]string) []string {
	*names = nil
	for _, notify := range s.Notifies(id) {
		notify(nil)
	}
	return *names
}

func TestLaterAttachReplacesEarlier(t *testing.T) {
	var s Sessions[int]
	s.Put("a", &Attachment[int]{Epoch: 2, Order: 2})
	if a := s.Put("a", &Attachment[int]{Epoch: 1, Order: 1}); a.Epoch != 2 {
		t.Error("an earlier attach replaced a later one")
	}
	s.Put("a", &Attachment[int]{Epoch: 3, Order: 3})
	if s.Remove("a", 2) != nil || s.Get("a") == nil {
		t.Error("the end of an earlier attach removed a later one")
	}
	if a := s.Remove("a", 3); a == nil || a.Epoch != 3 || s.Len() != 0 {
		t.Errorf("removed %+v", a)
	}
}

func TestRenewalOfAnotherAttachDoesNotCount(t *testing.T) {
	var s Sessions[int]
	now := time.Now()
	s.Put("a", &Attachment[int]{Epoch: 2, Until: now})
	s.Renew("a", 1, now.Add(time.Hour))
	s.Renew("b", 1, now.Add(time.Hour))
	later := now.Add(time.Minute)
	for id := range s.Expired(later) {
		if id != "a" {
			t.Errorf("%s has expired", id)
		}
		s.Renew("a", 2, now.Add(time.Hour))
	}
	for id := range s.Expired(later) {
		t.Errorf("%s has expired after its renewal", id)
	}
}

func TestAttachInFlightIsNotifiedBesideTheOwner(t *testing.T) {
	var names []string
	var s Sessions[int]
	first := s.Begin("a", recorder(&names, "first"))
	second := s.Begin("a", recorder(&names, "second"))
	if got := notified(&s, "a", &names); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("%v are notified while two attaches are in flight", got)
	}
	second.Granted(2, time.Second, time.Now())
	if got := notified(&s, "a", &names); !slices.Equal(got, []string{"second", "first"}) {
		t.Errorf("%v are notified after the second was granted", got)
	}
	first.Granted(1, time.Second, time.Now()) // its answer is late
	if got := notified(&s, "a", &names); !slices.Equal(got, []string{"second"}) {
		t.Errorf("%v are notified after a late answer", got)
	}
	s.Begin("a", recorder(&names, "third")).Refused()
	if got := notified(&s, "a", &names); !slices.Equal(got, []string{"second"}) || len(s.pending) != 0 {
		t.Errorf("%v are notified after a refusal", got)
	}
	s.Begin("b", recorder(&names, "b"))
	if n := len(s.Everybody()); n != 2 {
		t.Errorf("everybody is %d, want the owner of a and the caller for b", n)
	}
}

func TestSweepLooksWhenSessionsHaveDoubled(t *testing.T) {
	var s Sessions[int]
	looked := 0
	for i := range 1000 {
		s.Put(fmt.Sprint(i), &Attachment[int]{})
		s.Sweep(func(id string, _ *Attachment[int]) bool { looked++; return id != "0" })
		if s.Len() > 2+smallSweep {
			t.Fatalf("%d sessions are kept of one", s.Len())
		}
	}
	if looked > 2*1000 || s.Get("0") == nil {
		t.Errorf("the sweeps looked %d times, and kept 0: %v", looked, s.Get("0"))
	}
}
