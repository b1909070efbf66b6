package lockkeeper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// withoutSlots is an engine that has only the methods of Engine.
type withoutSlots struct{ lockkeeper.Engine }

// withCount counts the slots that are taken.
type withCount struct {
	lockkeeper.Engine
	taken *atomic.Int64
}

func (e withCount) OpenSlots(k lockkeeper.Key, l lockkeeper.Label, o *lockkeeper.SlotOwner) lockkeeper.Slots {
	return countedSlots{e.Engine.(lockkeeper.SlotGranter).OpenSlots(k, l, o), e.taken}
}

type countedSlots struct {
	lockkeeper.Slots
	taken *atomic.Int64
}

func (s countedSlots) Take(slot *lockkeeper.Slot, path lockkeeper.Path, wait time.Duration) lockkeeper.SlotState {
	state := s.Slots.Take(slot, path, wait)
	if state != lockkeeper.SlotEmpty {
		s.taken.Add(1)
	}
	return state
}

// A plainWorld is one engine with two clients, and what a program saw of them.
type plainWorld struct {
	t    *testing.T
	e    lockkeeper.Engine
	a, b *lockkeeper.Client
	mu   sync.Mutex // guards seen
	seen []string

	aside *plainWorld // what the other goroutine of the scene saw
}

// see records what a program sees. Times are those of a bubble, so they are always the same.
func (w *plainWorld) see(what string, all ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, what+": "+strings.TrimSuffix(fmt.Sprintln(all...), "\n"))
}

func (w *plainWorld) lock(path string) *lockkeeper.Hold {
	h, err := w.a.Lock(background, path)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// look sees all that a hold says without being given a context of its own.
func (w *plainWorld) look(h *lockkeeper.Hold) {
	w.see("look", h.Err(), h.Fence(), h.Unconfirmed(), h.Ref(), h.Grants(), h.InUse(), h.Slot(), h.Remaining(), h.Asked(),
		h.RenewError())
}

func (w *plainWorld) context(h *lockkeeper.Hold) {
	synctest.Wait()
	w.see("context", h.Context().Err(), context.Cause(h.Context()))
}

// TestPlainLocksLookTheSame does the same with an engine that keeps plain locks in slots, and with one
// that does not. A program must see no difference.
func TestPlainLocksLookTheSame(t *testing.T) {
	for name, scene := range plainScenes {
		t.Run(name, func(t *testing.T) {
			var seen [2][]string
			var taken atomic.Int64
			for i := range seen {
				synctest.Test(t, func(t *testing.T) {
					var e lockkeeper.Engine = withCount{memlock.New(), &taken}
					if i == 1 {
						e = withoutSlots{memlock.New()}
					}
					w := &plainWorld{t: t, e: e, aside: new(plainWorld)}
					w.a = lockkeeper.New(e, lockkeeper.SessionID("a"), lockkeeper.SharedEngine(),
						lockkeeper.SessionLabel(lockkeeper.Label{As: "ann"}))
					w.b = lockkeeper.New(e, lockkeeper.SessionID("b"), lockkeeper.SharedEngine())
					w.lock("other").Close() // attached
					scene(w)
					synctest.Wait()
					w.see("close", w.a.Close(), w.b.Close(), e.Close())
					seen[i] = append(w.seen, w.aside.seen...)
				})
			}
			if taken.Load() < 2 {
				t.Error("no plain lock had a slot")
			}
			for i := range seen {
				for k, line := range seen[i] {
					seen[i][k] = unidentified(line)
				}
			}
			if !reflect.DeepEqual(seen[0], seen[1]) {
				t.Errorf("with slots:\n%s\nwithout slots:\n%s", strings.Join(seen[0], "\n"), strings.Join(seen[1], "\n"))
			}
		})
	}
}

// unidentified takes the ids of claims out of a text: they begin at random.
func unidentified(text string) string {
	for _, session := range []string{"a.", "b."} {
		for rest := text; ; {
			i := strings.Index(rest, session)
			if i < 0 {
				break
			}
			id := rest[i+2:]
			digits := len(id) - len(strings.TrimLeft(id, "0123456789"))
			if digits > 0 {
				text = strings.ReplaceAll(text, session+id[:digits], session+"id")
			}
			rest = id
		}
	}
	return text
}

// TestReleasedHoldIsNeverTheNext uses holds after their release: again, from two goroutines at once,
// and while the path is handed on. None of that may end the hold of the next one.
func TestReleasedHoldIsNeverTheNext(t *testing.T) {
	c := lockkeeper.New(memlock.New())
	defer c.Close()
	var holders, released, all atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			var old []*lockkeeper.Hold
			for range 500 {
				h, err := c.Lock(background, "x")
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it", n)
				}
				for _, o := range old {
					if err := o.Release(background); !errors.Is(err, lockkeeper.ErrNotHeld) || o.Err() == nil {
						t.Errorf("released again: %v, %v", err, o.Err())
					}
				}
				if err := h.Err(); err != nil {
					t.Errorf("it is held: %v", err)
				}
				holders.Add(-1)
				all.Add(1)
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						if h.Release(background) == nil {
							released.Add(1)
						}
					})
				}
				both.Wait()
				if old = append(old, h); len(old) > 3 {
					old = old[1:]
				}
			}
		})
	}
	running.Wait()
	if released.Load() != all.Load() {
		t.Errorf("%d holds were released %d times", all.Load(), released.Load())
	}
}

// TestPlainLocksBesideOthers locks one tree in all ways at once. Exclusive holders must be alone, and
// fences must rise.
func TestPlainLocksBesideOthers(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	var in [3]atomic.Int64 // of x, x/y, x/z
	var fences [3]atomic.Uint64
	paths := []string{"x", "x/y", "x/z"}
	var running sync.WaitGroup
	for worker := range 6 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 7))
			c := lockkeeper.New(e, lockkeeper.SharedEngine())
			defer c.Close()
			for range 400 {
				at := min(random.IntN(12), 2)
				ctx, cancel := context.WithCancel(background)
				var h *lockkeeper.Hold
				var err error
				switch random.IntN(40) {
				case 0:
					for range c.List(background, lockkeeper.Query{}) {
					}
				case 1, 2:
					h, err = c.TryLock(ctx, paths[at])
				case 3:
					go cancel()
					h, err = c.Lock(ctx, paths[at])
				case 4:
					h, err = c.Lock(ctx, paths[at], lockkeeper.WithWait(time.Millisecond))
				case 5:
					if h, err = c.Lock(ctx, paths[at]); err == nil {
						h.Context()
					}
				case 6, 7, 8, 9:
					short, end := context.WithTimeout(ctx, time.Duration(random.IntN(200))*time.Microsecond)
					h, err = c.Lock(short, paths[at])
					end()
				default:
					h, err = c.Lock(ctx, paths[at])
				}
				if err != nil && !errors.Is(err, lockkeeper.ErrNotAcquired) {
					t.Error(err)
				}
				if h != nil {
					enter(t, &in, &fences, at, h)
				}
				cancel()
			}
		})
	}
	running.Wait()
}

// enter holds paths[at] alone for a moment.
func enter(t *testing.T, in *[3]atomic.Int64, fences *[3]atomic.Uint64, at int, h *lockkeeper.Hold) {
	covered := []int{at}
	if at == 0 {
		covered = []int{0, 1, 2}
	}
	for _, i := range covered {
		if n := in[i].Add(1); n != 1 {
			t.Errorf("%d are in path %d", n, i)
		}
		if last := fences[i].Swap(h.Fence()); last >= h.Fence() {
			t.Errorf("fence %d after %d", h.Fence(), last)
		}
	}
	for _, i := range covered {
		in[i].Add(-1)
	}
	if err := h.Release(background); err != nil {
		t.Error(err)
	}
}

// whileOpening calls do while a client opens its slots.
type whileOpening struct {
	lockkeeper.Engine
	do     func()
	claims *atomic.Int64 // calls of Claim
}

func (e whileOpening) OpenSlots(k lockkeeper.Key, l lockkeeper.Label, o *lockkeeper.SlotOwner) lockkeeper.Slots {
	e.do()
	return e.Engine.(lockkeeper.SlotGranter).OpenSlots(k, l, o)
}

func (e whileOpening) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.claims.Add(1)
	return e.Engine.Claim(ctx, k, w)
}

// TestLocksBesideTheFirstHaveSlots locks a path while the client attaches for another lock. If that
// lock were a claim of the table, so would be all others of the path until nobody wants it.
func TestLocksBesideTheFirstHaveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *lockkeeper.Client
		var claims atomic.Int64
		var running sync.WaitGroup
		pair := func() {
			h, err := c.Lock(background, "x")
			if err != nil {
				t.Error(err)
				return
			}
			h.Close()
		}
		c = lockkeeper.New(whileOpening{memlock.New(), func() {
			running.Go(pair)
			synctest.Wait()
		}, &claims})
		defer c.Close()
		pair()
		running.Wait()
		if n := claims.Load(); n != 0 {
			t.Errorf("%d locks were claims of the table", n)
		}
	})
}

// TestSlotIsSmall keeps the only thing that a plain lock allocates in its size class.
func TestSlotIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(lockkeeper.Slot{}); size > 128 {
		t.Errorf("a slot has %d bytes", size)
	}
	c := lockkeeper.New(memlock.New())
	defer c.Close()
	pair := func() {
		h, err := c.Lock(background, "x")
		if err != nil {
			t.Fatal(err)
		}
		h.Release(background)
	}
	if n := testing.AllocsPerRun(100, pair); n > 1 {
		t.Errorf("a lock allocates %v times", n)
	}
}
