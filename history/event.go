package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Kind says what an [Event] tells.
type Kind string

// What can happen. Those that call something are recorded before the call is
// made, the others after the answer came.
const (
	Ask         Kind = "ask"         // a claim is asked for: Targets, Priority, Soft, Try
	Waits       Kind = "waits"       // the claim was answered: it waits in line
	Cancel      Kind = "cancel"      // its wait is given up: calls
	Granted     Kind = "granted"     // final answer: Fence, Grants, Unconfirmed
	Refused     Kind = "refused"     // final answer: it is not granted and never will be; Reason
	Unknown     Kind = "unknown"     // final answer: what came of it will not be known
	Release     Kind = "release"     // a hold is given back: calls
	Released    Kind = "released"    // the release was answered
	Lost        Kind = "lost"        // the holder knows that it holds no longer; Reason
	Gone        Kind = "gone"        // the whole client is gone, and with it every use of what it held
	Convert     Kind = "convert"     // a hold is to change its modes to those of Targets: calls
	Converted   Kind = "converted"   // it has them; Fence
	Unconverted Kind = "unconverted" // it keeps those that it had
	Count       Kind = "count"       // a counter that the hold guards is raised: calls; Path
	Counted     Kind = "counted"     // Path, Value: the counter after it
)

// Event is one moment in the life of a claim, as its client saw it.
type Event struct {
	At     time.Duration `json:"at"` // on the one clock of the history
	Kind   Kind          `json:"kind"`
	Client string        `json:"client"`
	Claim  string        `json:"claim,omitempty"` // unique in the history; empty for Gone

	Targets     []lockkeeper.Target `json:"targets,omitempty"`
	Priority    int                 `json:"priority,omitempty"`
	Soft        bool                `json:"soft,omitempty"`
	Try         bool                `json:"try,omitempty"`
	Fence       uint64              `json:"fence,omitempty"`
	Grants      []lockkeeper.Grant  `json:"grants,omitempty"`
	Unconfirmed bool                `json:"unconfirmed,omitempty"`
	Reason      lockkeeper.Reason   `json:"reason,omitempty"`
	Path        lockkeeper.Path     `json:"path,omitempty"`
	Value       int64               `json:"value,omitempty"`
}

// Read reads the JSON lines that a [Recorder] wrote. A last line that was cut
// off, as a process that is killed leaves it, is left out.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return events, nil // what is left has no newline: it was cut off
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history line %d: %w", number, err)
		}
		events = append(events, e)
	}
}

// Merge puts the events of several recorders, whose clocks must be one and the
// same, in the order in which they happened.
func Merge(histories ...[]Event) []Event {
	all := slices.Concat(histories...)
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all
}
