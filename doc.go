// Package lockkeeper is a lock manager for programs on one machine or many. Locks are granted in
// order, every user can see the holder of a lock and the reason of a wait, and a holder learns of a
// loss before the engine grants the lock to the next claim.
//
//	engine, err := lockkeeper.Open(ctx, "sqlite:/var/lib/myapp/locks.db") // import _ ".../engine/sqlitelock"
//	if err != nil {
//		return err
//	}
//	client := lockkeeper.New(engine)
//	defer client.Close()
//
//	hold, err := client.Lock(ctx, "mydatabase/mytest")
//	if err != nil {
//		return err // errors.Is distinguishes taken (ErrNotAcquired) and unreachable (ErrUnavailable)
//	}
//	defer hold.Close()
//	return runTest(hold.Context()) // the context ends, with the reason, if the lock is lost
//
// # Claims, holds and paths
//
// A claim asks for one or more targets. A target is a path, such as "mydatabase/mytest", and a
// mode: exclusive, shared, or a number of permits under a limit. A claim waits in line until the
// engine grants it. Then it is a hold, until it is released or ends for one of the reasons of
// [Reason].
//
// Paths form a tree, and a target covers its whole subtree: an exclusive hold of "mydatabase"
// covers "mydatabase/mytest", and a claim for "mydatabase" waits for every holder below it, in
// fair order.
//
// # Clients
//
// A [Client] has one session at an engine, and renews it. [Client.Lock], [Client.TryLock],
// [Client.Acquire] and [Client.Do] take locks, [Client.Enqueue] waits for one in the background,
// and [Client.List] shows holders and waiters. Conditions such as [WithWait], [WithPriority] and
// [WithSteal] change how a claim waits. A lock that is taken again inside its [Hold.Context] is
// the same lock.
//
// # Losing a lock
//
// A hold ends early if its session can't be renewed, if a claim of higher priority steals it, if
// it exceeds its longest hold, or if an operator revokes it. The client ends the hold at its own
// deadline, which lies before the moment at which the engine can grant the next claim:
//
//	deadline = sentAt + ttl - Margin(ttl), Margin(d) = d/100 + 10ms
//
// This holds as long as the rates of the two clocks differ by at most 1%. A suspended process does
// not notice its deadline; a resource that must reject its late writes compares [Hold.Fence].
//
// # Errors
//
// Programs act on the sentinels: [ErrNotAcquired] means that the lock is taken, [ErrUnavailable]
// that the engine did not answer, [ErrLost] that a hold ended early, and [ErrInvalid] that the
// request has to be corrected. An [*Error] has the evidence: the blockers of the claim, its
// position in line, and the reason of an end.
//
// # For engine authors
//
// An [Engine] keeps claims. It registers a [Scheme], by which [Open] finds it, and passes the
// suite of package enginetest. [Guarantees] declare its features and promises; [Session],
// [Key], [Lease], [Want], [Ending], [Query] and [Status] are what its seven methods exchange; the
// interfaces in capabilities.go and slots.go are abilities that only some engines have. The state of a
// session, as the engine sees it:
//
//	          Attach                    TTL passes, Leave
//	(none) ───────────► open ─────────────────────────────► ended, with all its claims
//	                    │  ▲ Attach that names its epoch: a new epoch, and older keys
//	    engine restarts │  │ are refused (R19)
//	                    ▼  │
//	                 to resume ── TTL passes ──► ended
//
// The engine states the ends of holds in answers, and the client acknowledges them (R12):
//
//	engine: Lease{Number: n, Claims: [claim 7 ends at T]}  ──►  client
//	client: any call with Key{Acked: n}                    ──►  engine: the holder knows T
//
// Until the acknowledgement the engine assumes that the holder does not know T, and marks a grant
// of the same path as Unconfirmed. Package table states the rules of granting, numbered R1 to R20;
// comments cite them by number.
package lockkeeper
