package lockkeeper_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

func ExampleClient_Lock() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	ctx := context.Background()

	hold, err := client.Lock(ctx, "mydatabase/mytest", lockkeeper.WithAs("the nightly build"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Close()
	fmt.Println("held with fence", hold.Fence())

	_, err = client.TryLock(ctx, "mydatabase")
	var taken *lockkeeper.Error
	if errors.As(err, &taken) && errors.Is(err, lockkeeper.ErrNotAcquired) {
		fmt.Println("taken by", taken.Blocked[0].As)
	}
	// Output:
	// held with fence 1
	// taken by the nightly build
}

func ExampleClient_Do() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()

	err := client.Do(context.Background(), "printer", func(ctx context.Context) error {
		fmt.Println("printing; the lock is held:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// printing; the lock is held: true
	// <nil>
}

// Many targets are granted together or not at all, so two claims that name them in different orders
// can't wait for each other.
func ExampleClient_Acquire() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()

	hold, err := client.Acquire(context.Background(),
		lockkeeper.Exclusive("orders/42"),
		lockkeeper.Shared("prices"),
		lockkeeper.Permits("workers", 1, 8))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Close()
	for _, g := range hold.Grants() {
		fmt.Println(g)
	}
	// Output:
	// exclusive orders/42
	// shared prices
	// 1 of 8 permits of workers
}

// A try of shared or permits targets is an Acquire that does not wait.
func ExampleWithWait() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	ctx := context.Background()

	reader, err := client.Acquire(ctx, lockkeeper.Shared("prices"), lockkeeper.WithWait(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	_, err = client.TryLock(ctx, "prices")
	fmt.Println("taken:", errors.Is(err, lockkeeper.ErrNotAcquired))
	// Output:
	// taken: true
}

// Each caller has its own limit: 3 slots for A, B and E, 6 for C and D. A caller with a higher limit
// may go on where the others are refused.
func ExamplePermits() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()

	for _, c := range []struct {
		name  string
		limit int
	}{{"B", 3}, {"A", 3}, {"C", 6}, {"E", 3}, {"D", 6}} {
		hold, err := client.Acquire(context.Background(),
			lockkeeper.Permits("router1", 1, c.limit), lockkeeper.WithWait(0))
		if err != nil {
			fmt.Printf("%s: full for a limit of %d\n", c.name, c.limit)
			continue
		}
		defer hold.Close()
		fmt.Printf("%s: %d in use, slot %d\n", c.name, hold.InUse(), hold.Slot())
	}
	// Output:
	// B: 1 in use, slot 1
	// A: 2 in use, slot 2
	// C: 3 in use, slot 3
	// E: full for a limit of 3
	// D: 4 in use, slot 4
}

// A claim for a whole database waits for every holder below it, and later claims wait behind it:
// nobody starves.
func ExampleClient_Enqueue() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	ctx := context.Background()

	test, _ := client.Lock(ctx, "mydatabase/mytest")
	cleanup, _ := client.Enqueue(ctx, lockkeeper.Exclusive("mydatabase"))
	late, _ := client.Enqueue(ctx, lockkeeper.Exclusive("mydatabase/yourtest"))

	status, _ := late.Status(ctx)
	fmt.Println("the late test waits at place", status.Position)

	test.Release(ctx)
	whole, _ := cleanup.Wait(ctx)
	fmt.Println("the clean-up has", whole.Grants()[0])
	whole.Release(ctx)
	hold, _ := late.Wait(ctx)
	fmt.Println("the late test has", hold.Grants()[0])
	// Output:
	// the late test waits at place 2
	// the clean-up has exclusive mydatabase
	// the late test has exclusive mydatabase/yourtest
}

// Inside the context of a hold, claims that it covers are granted at once. The last release frees
// the hold.
func ExampleHold_Context() {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	ctx := context.Background()

	outer, _ := client.Lock(ctx, "mydatabase")
	inner, _ := client.Lock(outer.Context(), "mydatabase/mytest")
	outer.Release(ctx)
	_, err := client.TryLock(ctx, "mydatabase")
	fmt.Println("still held by the inner handle:", errors.Is(err, lockkeeper.ErrNotAcquired))
	inner.Release(ctx)
	_, err = client.TryLock(ctx, "mydatabase")
	fmt.Println("free now:", err == nil)
	// Output:
	// still held by the inner handle: true
	// free now: true
}
