package interleave

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

// alike is a program of n equal goroutines. At the end the first number must be n.
func alike(n int, does func(*scene)) *Program {
	var s *scene
	return &Program{
		Start: func(w *World) {
			s = &scene{}
			w.Share(1, s)
			for range n {
				w.Go("", func() { does(s) })
			}
		},
		End: func(*World) error {
			if sum := s.numbers[0].Load(); sum != int64(n) {
				return fmt.Errorf("sum %d", sum)
			}
			return nil
		},
	}
}

// TestWrongPrograms explores programs that fail under some schedule.
func TestWrongPrograms(t *testing.T) {
	for _, c := range []struct {
		name, want string
		program    *Program
	}{
		{"a sum is lost", "at the end: sum 1", alike(2, func(s *scene) { s.numbers[0].Store(s.numbers[0].Load() + 1) })},
		{"waiting for what nobody does", "deadlock", alike(2, func(s *scene) {
			for s.numbers[0].Load() == 0 {
				Gosched()
			}
		})},
		{"waiting for nothing", "which value it waits for", alike(2, func(*scene) { Gosched() })},
		{"an Unlock without a Lock", "not locked", alike(2, func(s *scene) { s.mutex.Unlock() })},
		{"a Lock of one's own", "deadlock", alike(1, func(s *scene) { s.mutex.Lock(); s.mutex.Lock() })},
		{"a guarded field without the lock", "without the mutex", alike(2, func(s *scene) {
			s.mutex.Lock()
			*Guarded(&s.plain, &s.mutex)++
			s.mutex.Unlock()
			*Guarded(&s.plain, &s.mutex)++
		})},
		{"a panic", "index out of range", alike(2, func(s *scene) { _ = make([]int, 1)[s.numbers[0].Add(1)-1] })},
		{"no end", "does not end", alike(2, func(s *scene) {
			for s.numbers[0].Add(2) > 0 {
				continue
			}
		})},
		{"locks in two orders", "deadlock", crossing()},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Explore(c.program, 100_000)
			if r.Failure == nil || !strings.Contains(r.Failure.What, c.want) || strings.Contains(r.Failure.What, "random run") {
				t.Fatalf("%+v, want %q", r, c.want)
			}
			again, err := Replay(c.program, r.Failure.Schedule)
			if err != nil || !strings.Contains(again.What, c.want) {
				t.Errorf("replay of %s: %v, %v; want %q", r.Failure.Schedule, again, err, c.want)
			}
		})
	}
}

func crossing() *Program {
	both := func(first, second *Mutex) {
		first.Lock()
		defer first.Unlock()
		second.Lock()
		defer second.Unlock()
	}
	return &Program{Start: func(w *World) {
		var a, b Mutex
		w.Go("one", func() { both(&a, &b) })
		w.Go("other", func() { both(&b, &a) })
	}}
}

// TestRightPrograms explores programs that never fail.
func TestRightPrograms(t *testing.T) {
	for name, does := range map[string]func(*scene){
		"Add": func(s *scene) { s.numbers[0].Add(1) },
		"CompareAndSwap": func(s *scene) {
			for {
				if n := s.numbers[0].Load(); s.numbers[0].CompareAndSwap(n, n+1) {
					return
				}
			}
		},
		"Mutex": func(s *scene) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			s.numbers[0].Store(s.numbers[0].Load() + 1)
		},
		"one waits for the other": func(s *scene) {
			if s.numbers[1].Swap(1) == 1 {
				for s.numbers[0].Load() == 0 {
					Gosched()
				}
			}
			s.numbers[0].Add(1)
		},
		"Pointer": func(s *scene) {
			n := new(Int64)
			if n.Store(7); !s.pointer.CompareAndSwap(nil, n) {
				n = s.pointer.Load()
			}
			if n.Load() == 7 {
				s.numbers[0].Add(1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if r := Explore(alike(2, does), 100_000); r.Failure != nil || r.Partial || r.States == 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestNondeterministicProgramIsReported explores a program that differs from run to run.
func TestNondeterministicProgramIsReported(t *testing.T) {
	times := int64(0)
	r := Explore(alike(2, func(s *scene) {
		if times++; times%3 == 0 {
			s.numbers[0].Add(1)
		}
		s.numbers[0].Add(1)
	}), 100_000)
	if r.Failure == nil {
		t.Errorf("%+v, want a complaint", r)
	}
}

// TestContextEnds runs the end of a context and a cleanup as goroutines.
func TestContextEnds(t *testing.T) {
	seen := map[string]bool{}
	var log string
	p := &Program{
		Start: func(w *World) {
			ctx, s, handle := &Cancelable{}, &scene{}, new(int)
			log = ""
			stop := AfterFunc(ctx, func() {
				if ctx.Err() != context.Canceled {
					w.fail("the function runs before the end")
				}
				s.numbers[0].Add(1)
				log += "function "
			})
			AddCleanup(handle, func(s *scene) { s.numbers[0].Add(1); log += "cleanup " }, s)
			w.Go("ends", func() { ctx.Cancel() })
			w.Go("stops", func() {
				if stop() {
					log += "stopped "
				}
				w.LastUse("handle", handle, func() { s.numbers[0].Add(1); log += "used "; KeepAlive(handle) })
			})
		},
		End: func(*World) error { seen[log] = true; return nil },
	}
	if r := Explore(p, 100_000); r.Failure != nil {
		t.Fatalf("%s\n%s", r.Failure.What, r.Failure.Story)
	}
	for log := range seen {
		stopped, ran := strings.Contains(log, "stopped"), strings.Contains(log, "function")
		if stopped == ran || strings.Index(log, "cleanup") < strings.Index(log, "used") {
			t.Errorf("seen: %s", log)
		}
	}
	if !seen["stopped used cleanup "] || !seen["function used cleanup "] || !seen["used cleanup function "] {
		t.Errorf("seen only %v", seen)
	}
}

// TestForgottenPointerIsReported has a goroutine that keeps a pointer from one call to the next, and
// states it in Return or does not.
func TestForgottenPointerIsReported(t *testing.T) {
	for _, honest := range []bool{true, false} {
		ends := map[int64]bool{}
		var got int64
		r := Explore(&Program{
			Start: func(w *World) {
				s, n := &scene{}, [2]*Int64{new(Int64), new(Int64)}
				n[1].Store(1)
				s.pointer.Store(n[0])
				s.pointer.Store(n[1])
				s.pointer.Store(n[0])
				w.Go("", func() {
					w.Call(0)
					p := s.pointer.Load()
					if honest {
						w.Return(1, 1, unsafe.Pointer(p))
					} else {
						w.Return(1, 1)
					}
					s.numbers[0].Add(1)
					got = p.Load()
				})
				w.Go("", func() { s.pointer.Store(n[1]); s.numbers[0].Add(1) })
			},
			End: func(*World) error { ends[got] = true; return nil },
		}, 100_000)
		if found := r.Failure == nil && len(ends) == 2; found != honest {
			t.Errorf("honest %t: %+v, and the pointer leads to %v", honest, r, ends)
		}
	}
}

// TestMutexKeepsPast has memory whose state follows only from the past of its mutex: two goroutines
// change it twice each, in six orders, and know nothing of it.
func TestMutexKeepsPast(t *testing.T) {
	var s *scene
	ends := map[int64]bool{}
	x := newExplorer(&Program{
		Start: func(w *World) {
			s = &scene{}
			w.Share(1, s)
			for digit := range int64(2) {
				w.Go("", func() {
					for place := range uint64(2) {
						w.Call(0)
						s.do(instruction{do: "blindly", b: digit}, nil)
						w.Return(0, place)
					}
				})
			}
		},
		End: func(*World) error { ends[s.plain] = true; return nil },
	})
	defer x.close()
	x.warm, x.randomRuns = 0, 0
	r := x.explore(100_000)
	if r.Failure != nil || len(ends) != 6 {
		t.Errorf("%+v: %v, want six numbers of two bits each of 0 and 1", r, ends)
	}
}

// TestUnlockIsNoTurn has another goroutine run between an Unlock and the next operation.
func TestUnlockIsNoTurn(t *testing.T) {
	var s *scene
	var plain, number int64
	ends := map[[2]int64]bool{}
	x := newExplorer(&Program{
		Start: func(w *World) {
			s = &scene{}
			w.Share(1, s)
			w.Go("", func() {
				s.do(instruction{do: "blindly", b: 1}, nil)
				number = s.numbers[0].Load()
			})
			w.Go("", func() {
				plain = s.do(instruction{do: "locked"}, nil)
				s.numbers[0].Store(1)
			})
		},
		End: func(*World) error { ends[[2]int64{plain, number}] = true; return nil },
	})
	defer x.close()
	x.warm, x.randomRuns = 0, 0
	r := x.explore(100_000)
	if want := [2]int64{2, 1}; r.Failure != nil || !ends[want] || len(ends) != 4 {
		t.Errorf("%+v: %v, want %v and three others", r, ends, want)
	}
}

func TestSchedulesAsText(t *testing.T) {
	s, err := parseSchedule("A3,b1,B0")
	if err != nil || s.String() != "A3,b1,B0" {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "A", "A3,", "3A", "A-1", "Z1", "A3 b1"} {
		if s, err := parseSchedule(bad); err == nil {
			t.Errorf("%q is %v, want an error", bad, s)
		}
	}
	if f, err := Replay(alike(2, func(s *scene) { s.numbers[0].Add(1) }), "B1"); err != nil || f.What != "" {
		t.Errorf("the begin of a schedule: %v, %v", f, err)
	}
	if f, err := Replay(alike(2, func(s *scene) { s.numbers[0].Add(1) }), "A1,C1"); err != nil ||
		!strings.Contains(f.What, "does not fit") {
		t.Errorf("a schedule of another program: %v, %v", f, err)
	}
}
