package main

import (
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// The lowest open id is that of the first claim without an answer, whatever the others do.
func TestLowestOpenID(t *testing.T) {
	var ids claimIDs
	l := &engineLocker{}
	for want := uint64(1); want <= 4; want++ {
		if got := ids.begin(l); got != want {
			t.Fatalf("id %d, want %d", got, want)
		}
	}
	for _, step := range []struct{ closed, lowest uint64 }{{2, 1}, {1, 3}, {4, 3}, {3, 5}, {2, 5}} {
		ids.close(step.closed)
		if got := ids.lowestOpen.Load(); got != step.lowest {
			t.Errorf("with %d answered the lowest open id is %d, want %d", step.closed, got, step.lowest)
		}
	}
	if got := ids.begin(l); got != 5 {
		t.Errorf("id %d, want 5", got)
	}
	if ids.done(3); ids.locker(3) != nil || ids.locker(2) != l {
		t.Error("a claim is pending after it is done, or another is not")
	}
}

// A waiting claim is stated as answered, so that it does not make the engine keep the ends of others.
func TestWaitingClaimsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := openSession(t.Context(), memlock.New(), "bench")
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		first, second := s.locker(), s.locker()
		if err := first.Acquire(t.Context(), "db"); err != nil {
			t.Fatal(err)
		}
		acquired := make(chan error, 1)
		go func() { acquired <- second.Acquire(t.Context(), "db") }()
		synctest.Wait()
		if got := s.by().LowestOpen; len(acquired) > 0 || got != 3 {
			t.Errorf("while the second claim waits the lowest open id is %d, want 3; %d calls have ended", got,
				len(acquired))
		}
		if err := first.Release(t.Context(), "db"); err != nil {
			t.Fatal(err)
		}
		if err := <-acquired; err != nil {
			t.Fatal(err)
		}
	})
}
