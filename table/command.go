package table

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// RulesVersion is the version of the rules that this package implements. Every log entry and
// snapshot states it. Raise it with every change after which the same commands give another table:
// another grant, order, end, counter or record. The text that says why a claim ended is in its
// record, so other words in it are other rules. An upgraded program then refuses the entries that the
// version before wrote, and does not replay them to another table. A golden test of internal/record
// fails if a change forgot to raise it.
const RulesVersion = 3

// Op is the operation of a Command.
type Op uint8

const (
	// Pass lets time pass, and applies LowestOpen and Acked of Command.Key if the key is valid
	// (R16).
	Pass Op = iota
	// Attach opens Command.Session or takes it over (R19).
	Attach
	// Renew gives the session of Command.Key its whole TTL again (R11).
	Renew
	// Claim makes or amends the claim that Command.Want describes, or makes its freeze (R16, R18).
	Claim
	// End does what Command.Ending says.
	End
	// Gone ends the session of Command.Key because the kernel reported that all its processes
	// ended. It changes nothing if the session has another epoch by now (R11).
	Gone
	// Restart requires every session to resume (R19).
	Restart
	// Review reconsiders every waiting claim. It changes nothing in a table that only Step changed.
	// A table loaded in parts needs it, because a claim that blocked another may be missing now.
	Review
	ops
)

var opNames = [ops]string{
	Pass:    "pass",
	Attach:  "attach",
	Renew:   "renew",
	Claim:   "claim",
	End:     "end",
	Gone:    "gone",
	Restart: "restart",
	Review:  "review",
}

func (o Op) String() string {
	if o >= ops {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}

// Command is one step of a table. It is a value that can be logged and replayed.
type Command struct {
	At      time.Duration      // the engine's time (R20)
	Op      Op                 //
	Key     lockkeeper.Key     // of Renew, Claim, End, Gone; may be of Pass
	Session lockkeeper.Session // of Attach
	Want    lockkeeper.Want    // of Claim
	Ending  lockkeeper.Ending  // of End

	// Alone is for Renew and Pass in a table that has one session but not every claim that blocks
	// its claims. The command then does not grant or end claims, and fires no timers before it.
	Alone bool
}

// Reply answers one command: Attach and Renew with a lease, Claim with a status.
type Reply struct {
	Lease  lockkeeper.Lease
	Status lockkeeper.Status
}

// EventKind says what happened to a claim or a freeze.
type EventKind uint8

const (
	// Queued: it began to wait, or its position in the queue may have changed.
	Queued EventKind = iota + 1
	// Granted: it became held, or an upgrade was granted.
	Granted
	// Downgraded: it is held shared instead of exclusive.
	Downgraded
	// Undone: the table gave up its conversion; Event.Reason says why. It stays held shared.
	Undone
	// AskChanged: another claim's ask to it began, changed or ended; or it lapsed.
	AskChanged
	// Ended for good; Event.Reason says why.
	Ended
	// Froze: a freeze began or was replaced.
	Froze
	// Thawed: a freeze ended.
	Thawed
	eventKinds
)

var eventNames = [eventKinds]string{
	Queued: "queued", Granted: "granted", Downgraded: "downgraded", Undone: "undone",
	AskChanged: "ask changed", Ended: "ended", Froze: "froze", Thawed: "thawed",
}

func (k EventKind) String() string {
	if k == 0 || k >= eventKinds {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventNames[k]
}

// Event is one change that a step made. Table.Status returns the other facts about Ref.
type Event struct {
	At     time.Duration
	Kind   EventKind
	Ref    lockkeeper.Ref
	Reason lockkeeper.Reason // of Ended, Undone
	Fence  uint64            // of Granted
	Path   lockkeeper.Path   // of Froze, Thawed
}
