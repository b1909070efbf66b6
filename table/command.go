package table

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// RulesVersion is the version of the rules that this package implements. Every log entry and
// snapshot states it. Raise it with every change after which the same commands give another table:
// another grant, order, end, counter or record. An upgraded program then refuses the entries that
// the version before wrote, and does not replay them to another table. A golden test of
// internal/record fails if a change forgot to raise it.
const RulesVersion = 1

// Op is what a Command does.
type Op uint8

const (
	// Pass lets time pass, and heeds what Command.Key states if that is of use (R16).
	Pass Op = iota
	// Attach opens Command.Session or takes it over (R19).
	Attach
	// Renew gives the session of Command.Key its whole TTL again (R11).
	Renew
	// Claim makes or amends the claim Command.Want, or the freeze that it is (R16, R18).
	Claim
	// End does what Command.Ending says.
	End
	// Gone ends the session of Command.Key because the kernel said that all its
	// processes are gone; nothing happens if it has another epoch by now (R11).
	Gone
	// Restart makes every session resume (R19).
	Restart
	// Review settles the whole line, as if everything around it had changed. In a
	// table that was only stepped it changes nothing. One that was loaded in parts
	// needs it: claims may be missing by now that stood in the way.
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

	// Alone is for Renew and Pass in a table that has been loaded with one session and not
	// with all that stands in the way of its claims: nothing else happens, and
	// nothing falls due before it.
	Alone bool
}

// Reply answers one command: Attach and Renew with a lease, Claim with a status.
type Reply struct {
	Lease  lockkeeper.Lease
	Status lockkeeper.Status
}

// EventKind is what happened to a claim or a freeze.
type EventKind uint8

const (
	// Queued: it began to wait, or its position in the queue may have changed.
	Queued EventKind = iota + 1
	// Granted: it became held, or an upgrade was granted.
	Granted
	// Downgraded: it is held shared instead of exclusive.
	Downgraded
	// Undone: a conversion was given up; Event.Reason says why. It stays held shared.
	Undone
	// AskChanged: an ask of it came, changed or was withdrawn; or it lapsed.
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

// Event is one thing that a step did. Table.Status has the rest about Ref.
type Event struct {
	At     time.Duration
	Kind   EventKind
	Ref    lockkeeper.Ref
	Reason lockkeeper.Reason // of Ended, Undone
	Fence  uint64            // of Granted
	Path   lockkeeper.Path   // of Froze, Thawed
}
