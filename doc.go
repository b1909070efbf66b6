// Package lockkeeper is the vocabulary of Lockkeeper and its portable client.
//
// A claim asks for one or more targets. A target is a path, such as
// "mydatabase/mytest", and a mode: exclusive, shared, or a number of permits
// under a limit. A claim waits in line until the engine grants it, and then it
// is a hold until it is released or ends for one of the reasons of [Reason].
//
// Paths form a tree, and a target covers its whole subtree: whoever holds
// "mydatabase" exclusively holds "mydatabase/mytest" too, and whoever wants
// "mydatabase" waits for everybody below it, in fair order.
//
// An [Engine] keeps claims: in this process (engine/memlock), in a file that
// many processes share (engine/sqlitelock). A [Client] stands on any engine and
// does what is the same everywhere: it waits, renews, tells a holder of its
// loss in time, gives back a grant that nobody receives, and counts re-entrance.
//
//	client := lockkeeper.New(memlock.New())
//	defer client.Close()
//
//	hold, err := client.Lock(ctx, "mydatabase/mytest")
//	if err != nil {
//		return err // errors.Is tells taken (ErrNotAcquired) from unreachable (ErrUnavailable)
//	}
//	defer hold.Close()
//
// The rules by which claims are granted are package table's, numbered R1 to
// R20 in its documentation; comments everywhere cite them by number.
package lockkeeper
