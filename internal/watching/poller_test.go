package watching

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// readCall is one call of a Read, and its result.
type readCall struct {
	number, run int // counted from 1: reads; goroutines of the Poller
	queries     []lockkeeper.Query
	joined      bool
}

// pollerTest is a Poller whose reads are recorded.
type pollerTest struct {
	*testing.T
	*Poller[readCall]
	calls atomic.Int64 // of Reads
	runs  int
	still bool          // reads say that nothing has changed
	takes time.Duration // how long a read takes
	close context.CancelFunc
}

func newPollerTest(t *testing.T) *pollerTest {
	pt := &pollerTest{T: t}
	ctx, cancel := context.WithCancel(context.Background())
	pt.close = cancel
	pt.Poller = NewPoller(ctx, func() Read[readCall] {
		pt.runs++
		run := pt.runs
		return func(queries []lockkeeper.Query, joined bool) *readCall {
			call := &readCall{number: int(pt.calls.Add(1)), run: run, queries: queries, joined: joined}
			time.Sleep(pt.takes)
			if pt.still && !joined {
				return nil
			}
			return call
		}
	})
	t.Cleanup(func() {
		pt.close()
		pt.Wait()
	})
	return pt
}

// reads returns how many reads begin within d.
func (pt *pollerTest) reads(d time.Duration) int {
	synctest.Wait()
	before := pt.calls.Load()
	time.Sleep(d)
	synctest.Wait()
	return int(pt.calls.Load() - before)
}

func (pt *pollerTest) next(w *Watcher[readCall]) *readCall {
	pt.Helper()
	result := w.Next(pt.Context())
	if result == nil {
		pt.Fatal("the watcher gets no result")
	}
	return result
}

func TestWatchersShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		var all []*Watcher[readCall]
		for i := range 100 {
			all = append(all, p.Join(lockkeeper.Query{Ref: lockkeeper.Ref{Session: "s", ID: uint64(i)}}))
		}
		time.Sleep(pollPause + time.Millisecond)
		first := p.next(all[0])
		for _, w := range all[1:] {
			if p.next(w) != first {
				t.Fatal("two watchers of one time have results of two reads")
			}
		}
		if len(first.queries) != len(all) {
			t.Errorf("a read for %d watchers, want %d", len(first.queries), len(all))
		}
	})
}

// A burst of changes causes one read per pollPause at most; without changes it is one per pollIdle.
func TestPollerReadsSoonAfterWakeAndElseRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		w := p.Join(lockkeeper.Query{})
		time.Sleep(10*pollIdle + pollPause/2)
		if n := p.reads(10 * pollIdle); n != 10 {
			t.Errorf("%d reads in %v without a change, want 10", n, 10*pollIdle)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				p.Wake()
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(pollIdle)
		if n := p.reads(20 * pollPause); n != 20 {
			t.Errorf("%d reads in %v with a change each millisecond, want 20", n, 20*pollPause)
		}
		cancel()
		time.Sleep(pollIdle)
		p.next(w) // one that has come meanwhile
		p.next(w)
		time.Sleep(pollPause)
		before := p.calls.Load()
		p.Wake()
		synctest.Wait()
		if n := p.calls.Load() - before; n != 1 {
			t.Errorf("%d reads at once after a change, want 1", n)
		}
	})
}

// A result that was read before a watcher joined may lack what the watcher did before.
func TestWatcherGetsNoResultReadBeforeItJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		p.takes = time.Second
		first := p.Join(lockkeeper.Query{})
		time.Sleep(p.takes / 2)
		second := p.Join(lockkeeper.Query{})
		if early := p.next(first); early.number != 1 || len(early.queries) != 1 {
			t.Fatalf("the first result is %+v", early)
		}
		if result := p.next(second); result.number != 2 || !result.joined {
			t.Errorf("the second watcher gets %+v, want the read that began after it joined", result)
		}
	})
}

func TestReadWithoutChangesIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		p.still = true
		w := p.Join(lockkeeper.Query{})
		p.next(w)
		if n := p.reads(10 * pollIdle); n != 10 {
			t.Errorf("%d reads, want 10", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), pollIdle)
		defer cancel()
		if result := w.Next(ctx); result != nil {
			t.Errorf("received %+v, though no read found a change", result)
		}
	})
}

// The goroutine ends soon after the last watcher; the next watcher starts another with a state of its
// own.
func TestPollerEndsWithItsLastWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		a, b := p.Join(lockkeeper.Query{}), p.Join(lockkeeper.Query{})
		a.Leave()
		if p.next(b); !p.Watched() {
			t.Error("a watcher is there, and Watched says no")
		}
		b.Leave()
		began := time.Now()
		p.Wait()
		if took := time.Since(began); took > pollPause || p.Watched() {
			t.Errorf("the goroutine ends %v after the last watcher left, want %v at most", took, pollPause)
		}
		if n := p.reads(time.Minute); n > 0 {
			t.Errorf("%d reads without a watcher", n)
		}
		if result := p.next(p.Join(lockkeeper.Query{})); result.run != 2 || !result.joined {
			t.Errorf("after a pause a watcher gets %+v, want a result of the second run", result)
		}
	})
}

func TestWatchersOfClosedPollerEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPollerTest(t)
		w := p.Join(lockkeeper.Query{})
		p.next(w)
		p.close()
		p.Wait()
		reads := p.calls.Load()
		late := p.Join(lockkeeper.Query{})
		p.Wait()
		if late.Next(t.Context()) != nil || w.Next(t.Context()) != nil {
			t.Error("a watcher gets a result after the end")
		}
		if p.calls.Load() != reads {
			t.Error("a closed Poller reads")
		}
	})
}
