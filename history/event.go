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

// Kind is the kind of an [Event].
type Kind string

// The kinds of events. A client records a kind marked "call" before it makes the call, and any other
// after the answer.
const (
	Ask         Kind = "ask"         // call: requests a claim; Targets, Priority, Soft, Try
	Sent        Kind = "sent"        // call: hands the request to the engine, once more for each repetition
	Waits       Kind = "waits"       // the engine answered that the claim waits
	Cancel      Kind = "cancel"      // call: gives up the wait
	Granted     Kind = "granted"     // final answer: Fence, Grants, Unconfirmed
	Refused     Kind = "refused"     // final answer: the claim will never be granted; Reason
	Unknown     Kind = "unknown"     // final answer: the outcome remains unknown
	Release     Kind = "release"     // call: releases a hold
	Released    Kind = "released"    // the engine answered the release
	Lost        Kind = "lost"        // the holder knows of its loss; Reason
	Gone        Kind = "gone"        // the client is gone, and no longer uses its holds
	Convert     Kind = "convert"     // call: converts a hold to the modes of Targets
	Converted   Kind = "converted"   // the hold has the new modes; Fence
	Unconverted Kind = "unconverted" // the hold keeps its modes
	Count       Kind = "count"       // call: increments a counter that the hold guards; Path
	Counted     Kind = "counted"     // the counter is incremented; Path, Value
)

// Event is one moment in the life of a claim, as its client observed it.
type Event struct {
	At     time.Duration `json:"at"` // on the clock of the history
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

// Read reads the JSON lines of a [Recorder]. It ignores an incomplete last line, which a killed
// process leaves behind.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return events, nil // the rest has no newline: it is incomplete
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

// Merge sorts the events of several recorders, which must use the same clock, by time.
func Merge(histories ...[]Event) []Event {
	all := slices.Concat(histories...)
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all
}
