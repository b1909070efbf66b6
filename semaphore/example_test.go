package semaphore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// Five requests for one application, whose resources have three slots each. A, B and E know of one
// resource, C and D of two.
//
//	A -----------> acquire under 3 ------------> ...
//	B ------> acquire under 3 -------------------------> ...
//	C -----------> acquire under 6 --------> ...
//	D ----------------> acquire under 6 ----------------------> ...
//	E -------------> acquire under 3 ------------------> ...
//
// The acquires happen in the order B, A, C, E, D. D is granted although E was refused just before,
// because each request has its own limit. After two releases a request with limit 3 is granted: the
// refusal of E changed nothing.
func Example_differentLimits() {
	slots := semaphore.New[string]()
	held := map[string]*semaphore.Slot{}
	for _, r := range []struct {
		name  string
		limit int
	}{{"B", 3}, {"A", 3}, {"C", 6}, {"E", 3}, {"D", 6}} {
		slot, err := slots.TryAcquire("app", r.limit)
		if err != nil {
			fmt.Printf("%s: %v with limit %d\n", r.name, err, r.limit)
			continue
		}
		fmt.Printf("%s: number %d of %d\n", r.name, slot.Ordinal(), r.limit)
		held[r.name] = slot
	}
	for _, name := range []string{"A", "C"} {
		if err := held[name].Release(); err != nil {
			fmt.Println(err)
		}
	}
	slot, err := slots.TryAcquire("app", 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("E tries again: number %d of 3\n", slot.Ordinal())
	// Output:
	// B: number 1 of 3
	// A: number 2 of 3
	// C: number 3 of 6
	// E: full with limit 3
	// D: number 4 of 6
	// E tries again: number 3 of 3
}

func ExampleManager_TryAcquire() {
	slots := semaphore.New[string]()
	send := func(application string, machines int) error {
		slot, err := slots.TryAcquire(application, 3*machines)
		if errors.Is(err, semaphore.ErrFull) {
			return errors.New("too busy")
		}
		if err != nil {
			return err
		}
		defer slot.Release()
		fmt.Println("sending, number", slot.Ordinal())
		return nil
	}
	fmt.Println(send("shop", 1))
	fmt.Println(send("shop", 0))
	// Output:
	// sending, number 1
	// <nil>
	// too busy
}

func ExampleManager_TryAcquireN() {
	memory := semaphore.New[string]()
	large, _ := memory.TryAcquireN("disk 1", 6, 10)
	_, err := memory.TryAcquireN("disk 1", 5, 10)
	fmt.Println(err)
	fmt.Println(large.Release())
	fmt.Println(large.Release())
	// Output:
	// full
	// <nil>
	// not held
}

// Two limits at once, for all hosts and for each host: acquire one after the other, and release the
// first if the second is full.
func ExampleSlot_Release() {
	all, hosts := semaphore.New[string](), semaphore.New[string]()
	download := func(host string) error {
		one, err := all.TryAcquire("downloads", 100)
		if err != nil {
			return fmt.Errorf("in all: %w", err)
		}
		defer one.Release()
		ours, err := hosts.TryAcquire(host, 2)
		if err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
		defer ours.Release()
		return nil // the download
	}
	fmt.Println(download("example.org"))
	for range 2 {
		_, _ = hosts.TryAcquire("example.org", 2)
	}
	fmt.Println(download("example.org"))
	fmt.Println(all.Held("downloads"))
	// Output:
	// <nil>
	// example.org: full
	// 0
}

// The slots that a request still holds become free when its context is done.
func ExampleOwner() {
	slots := semaphore.New[string]()
	ctx, cancel := context.WithCancel(context.Background())
	owner := semaphore.NewOwner(ctx)
	defer owner.Close()
	slot, err := slots.TryAcquireFor(owner, "app", 1, 3)
	fmt.Println(slots.Held("app"), err)

	cancel()
	owner.Close() // without it, shortly after
	fmt.Println(slots.Held("app"))
	fmt.Println(slot.Release())
	// Output:
	// 1 <nil>
	// 0
	// not held: its owner has ended, which freed it
}

func ExampleOwner_Do() {
	slots := semaphore.New[string]()
	job := semaphore.NewOwner(context.Background())
	err := job.Do(func() error {
		if _, err := slots.TryAcquireFor(job, "app", 1, 3); err != nil {
			return err
		}
		return errors.New("failed half way")
	})
	fmt.Println(err)
	fmt.Println(slots.Held("app"))
	// Output:
	// failed half way
	// 0
}

func ExampleHandle() {
	slots := semaphore.New[string]()
	busy, err := slots.Handle("shop") // once
	if err != nil {
		fmt.Println(err)
		return
	}
	slot, err := busy.TryAcquire(3) // often
	fmt.Println(slot.Ordinal(), err, busy.Held())
	// Output:
	// 1 <nil> 1
}

func ExampleManager_All() {
	slots := semaphore.New[string]()
	for range 3 {
		_, _ = slots.TryAcquire("app", 3)
	}
	for key, n := range slots.All() {
		fmt.Println(key, n)
	}
	// Output:
	// app 3
}
