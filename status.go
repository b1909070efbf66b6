package lockkeeper

import (
	"fmt"
	"strings"
	"time"
)

// State is the stage of a claim's life.
type State uint8

const (
	// Waiting in line.
	Waiting State = iota + 1
	// Held: granted and not ended.
	Held
	// Ended for good; Status.Reason says why.
	Ended
	// Freezing: not a claim but an operator's freeze of a subtree (R18).
	Freezing
)

var stateNames = [...]string{Waiting: "waiting", Held: "held", Ended: "ended", Freezing: "frozen"}

func (s State) String() string {
	if s < Waiting || s > Freezing {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name and refuses any other text with [ErrInvalid].
func (s *State) UnmarshalText(text []byte) error {
	for i := Waiting; i <= Freezing; i++ {
		if stateNames[i] == string(text) {
			*s = i
			return nil
		}
	}
	return invalidf("state %q is unknown", text)
}

// Grant is a target as it was granted.
type Grant struct {
	Target
	InUse int `json:"in_use,omitempty"` // of Permits: units in use at the grant, the claim's own included (R7)
	Slot  int `json:"slot,omitempty"`   // of Permits with one unit: the lowest number from 1 to the limit that was free
}

// Status is a claim as its engine sees it at one moment. All times are durations that count from
// when the request was sent, never timestamps. In JSON they are seconds, and an infinite one is
// left out.
type Status struct {
	Ref Ref `json:"claim"`
	// the claim inside whose hold it was made, which may have ended since; zero: none
	Inside Ref `json:"inside,omitzero"`
	// rises with every change of this claim; of two statuses the one with the higher Change is true
	Change   uint64 `json:"change"`
	Revision uint64 `json:"revision"` // the latest that was accepted
	State    State  `json:"state"`
	Reason   Reason `json:"reason,omitempty"` // of Ended: why it ended. Else why its latest conversion was undone
	Text     string `json:"text,omitempty"`   // explains the reason: an operator's note, or a deadlock cycle

	Grants   []Grant `json:"targets"` // read only
	Priority int     `json:"priority,omitempty"`
	Label

	// of Held and Ended: rises with every grant of the engine (R13); 0 if never granted
	Fence uint64 `json:"fence,omitempty"`
	// granted while the former holder may not yet know of its loss (R12)
	Unconfirmed bool   `json:"unconfirmed,omitempty"`
	Converting  bool   `json:"converting,omitempty"` // held shared, waiting to be exclusive (R14)
	Asked       *Asked `json:"asked,omitempty"`      // of Held: asked to yield
	Lapsed      bool   `json:"lapsed,omitempty"`     // of Held: its client stopped using it (R12)

	Age time.Duration `json:"age"` // since it was granted, or since it began to wait
	// Held, Freezing: until its announced or enforced end. Waiting: until its wait times out.
	// Forever if there is no such end. The TTL of its session does not count
	Left time.Duration `json:"left"`

	Ticket uint64 `json:"ticket,omitempty"` // order in line among equal priorities: the lowest goes first (R4)
	// of Waiting in an answer of List, or timed out: 1 + the conflicting claims ahead in line (R17)
	Position int `json:"position,omitempty"`
	// likewise: estimate of the rest of the wait, even if that is given up (R17); 0 if unknown
	ETA   time.Duration `json:"eta,omitempty"`
	Waits []WaitReason  `json:"waits,omitempty"` // of Waiting in an answer of List: every reason of the wait
	// of Waiting in an answer of List, or refused: the blockers, at most MaxBlockers
	Blockers []Blocker `json:"blockers,omitempty"`

	// of a change that List yields by Query.Follow, at a node of a cluster: the position of the change in
	// the cluster's log, the same at all nodes; else 0. Only audit logs need it: it does not cross the wire
	LogIndex uint64 `json:"-"`
}

// MaxBlockers bounds the blockers of one status.
const MaxBlockers = 8

// Asked is a request to a holder to release, with the reason and the time (R10, R11, R18).
type Asked struct {
	By     Ref           `json:"by,omitzero"` // the claim that asks; zero for an operator and for an overdue hold
	Label                // of the caller
	Reason Reason        `json:"reason"` // of the end, unless the holder releases before: Stolen, Overdue, Revoked
	Left   time.Duration `json:"left"`   // until that end; Forever if the request has no end

	// EndsAt is that end in engine time (R20); 0 if the request has no end. A client only repeats
	// it in Lapse.EndsAt, and must not compare it with any clock.
	EndsAt time.Duration `json:"-"`
}

// Words returns the note and the name of the caller that asks, as far as they are known: "the disk
// is full (by ann@ci)".
func (a *Asked) Words() string {
	switch {
	case a.As == "":
		return a.Note
	case a.Note == "":
		return "by " + a.As
	}
	return a.Note + " (by " + a.As + ")"
}

func (a *Asked) String() string {
	who := a.As
	if who == "" {
		who = a.By.String()
	}
	switch {
	case a.Reason == Overdue:
		return "asked to yield: held for too long"
	case a.Reason == Revoked:
		return strings.TrimSuffix("asked to yield by an operator "+who+": "+Visible(a.Note), ": ")
	}
	return "asked to yield to " + who
}

// Blocker is one claim or freeze that another one waits for.
type Blocker struct {
	Ref   Ref           `json:"claim,omitzero"`
	Why   WaitReason    `json:"why"`
	Path  Path          `json:"path"` // the blocker's target that conflicts
	Mode  Mode          `json:"mode"`
	Units int           `json:"units,omitempty"`
	Age   time.Duration `json:"age"`
	Left  time.Duration `json:"left,omitempty"` // until its announced end, if it has one
	Label
}

func (b Blocker) String() string {
	who := b.As
	if who == "" {
		who = b.Ref.String()
	}
	s := fmt.Sprintf("%s %s on %s for %s", b.Why, who, b.Path, b.Age.Round(time.Millisecond))
	if b.Note != "" {
		s += fmt.Sprintf(" (%s)", Visible(b.Note))
	}
	if b.Link != "" {
		s += " " + Visible(b.Link)
	}
	return s
}
