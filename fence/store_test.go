package fence

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// enter enters, and fails the test if that is refused.
func enter(t *testing.T, m *Memory, fence uint64) (context.Context, func()) {
	t.Helper()
	work, leave, err := m.Enter(t.Context(), "db", fence)
	if err != nil {
		t.Fatalf("fence %d: %v", fence, err)
	}
	return work, leave
}

func TestMemoryRefusesLowerFences(t *testing.T) {
	m := &Memory{}
	_, leave := enter(t, m, 5)
	leave()
	_, leave = enter(t, m, 7)
	leave()
	leave() // twice is once
	_, _, err := m.Enter(t.Context(), "db", 6)
	var stale *StaleError
	if !errors.As(err, &stale) || *stale != (StaleError{Resource: "db", Fence: 6, Highest: 7}) {
		t.Errorf("%v", err)
	}
	if _, _, err := m.Enter(t.Context(), "other", 1); err != nil {
		t.Error(err)
	}
	if _, _, err := m.Enter(t.Context(), "db", 0); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestMemoryAdmitsOneHolderSeveralTimes(t *testing.T) {
	m := &Memory{}
	_, leave := enter(t, m, 5)
	defer leave()
	_, leave2 := enter(t, m, 5)
	leave2()
}

// A request that was admitted under an earlier fence is still at work: the next one waits for its
// end, and it learns that it is late.
func TestMemoryWaitsForEarlierWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{}
		early, leaveEarly := enter(t, m, 5)
		_, leaveEarly2 := enter(t, m, 5)
		entered := make(chan func())
		go func() {
			_, leave := enter(t, m, 6)
			entered <- leave
		}()
		synctest.Wait()
		if !errors.Is(context.Cause(early), ErrStale) {
			t.Errorf("the earlier work goes on: %v", context.Cause(early))
		}
		if _, _, err := m.Enter(t.Context(), "db", 5); !errors.Is(err, ErrStale) {
			t.Errorf("new work under the earlier fence: %v", err)
		}
		leaveEarly()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("the next holder works beside the former one")
		default:
		}
		leaveEarly2()
		leave := <-entered
		leave()
	})
}

func TestMemoryWaitersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxWait: 3 * time.Second}
		_, leave := enter(t, m, 5)
		wait := func(ctx context.Context, fence uint64) <-chan error {
			end := make(chan error, 1)
			go func() {
				_, _, err := m.Enter(ctx, "db", fence)
				end <- err
			}()
			synctest.Wait()
			return end
		}
		overtaken := wait(t.Context(), 6)
		gone, giveUp := context.WithCancel(t.Context())
		cancelled := wait(gone, 7)
		if err := <-overtaken; !errors.Is(err, ErrStale) {
			t.Errorf("overtaken: %v", err)
		}
		giveUp()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if err := <-wait(t.Context(), 8); !errors.Is(err, ErrBusy) {
			t.Errorf("after MaxWait: %v", err)
		}
		leave()
		if _, _, err := m.Enter(t.Context(), "db", 7); !errors.Is(err, ErrStale) {
			t.Errorf("a fence below that of a waiter that gave up: %v", err)
		}
		_, leave = enter(t, m, 8)
		leave()
	})
}

func TestMemoryIsBounded(t *testing.T) {
	m := &Memory{MaxResources: 2}
	for name, want := range map[string]error{"a": nil, "b": nil} {
		if _, _, err := m.Enter(t.Context(), name, 1); err != want {
			t.Error(err)
		}
	}
	if _, _, err := m.Enter(t.Context(), "c", 1); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if _, _, err := m.Enter(t.Context(), "a", 1); err != nil {
		t.Error(err)
	}
}

// Requests under random fences come and go at random: at no moment do two fences work, and a fence
// never works after a higher one.
func TestMemoryAtRandom(t *testing.T) {
	seed := testmode.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxWait: time.Second}
		var (
			requests sync.WaitGroup
			mu       sync.Mutex
			working  int
			last     uint64
			served   int
		)
		for i := range 400 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			requests.Go(func() {
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				fence := uint64(1 + i/10)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
				defer cancel()
				_, leave, err := m.Enter(ctx, "db", fence)
				if err != nil {
					return
				}
				mu.Lock()
				if fence < last || fence > last && working > 0 {
					t.Errorf("fence %d works after %d, beside %d others", fence, last, working)
				}
				last, working, served = fence, working+1, served+1
				mu.Unlock()
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				mu.Lock()
				working--
				mu.Unlock()
				leave()
			})
		}
		requests.Wait()
		if served == 0 {
			t.Error("no request was served")
		}
	})
}
