package lockkeeper

import (
	"context"
	"fmt"
)

// A Finding is the outcome of one check of a set-up.
type Finding struct {
	Check  string `json:"check"`            // what was looked at, such as "file system"
	Grade  Grade  `json:"grade"`            // how it stands
	Detail string `json:"detail"`           // what was seen
	Remedy string `json:"remedy,omitempty"` // what to do about it; empty if there is nothing to do
}

// Grade says how a checked thing stands.
type Grade uint8

const (
	// Fine is as it should be.
	Fine Grade = iota
	// Doubtful works, but not as well or as surely as it could.
	Doubtful
	// Broken does not work, or breaks a promise.
	Broken
)

func (g Grade) String() string {
	switch g {
	case Fine:
		return "fine"
	case Doubtful:
		return "doubtful"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("grade %d", uint8(g))
}

// MarshalText writes the grade as String does.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// A TroubleNotifier is an [Engine] that knows when it begins to refuse claims because it can't
// make them durable, such as on a full disk, and when it accepts claims again. It calls changed
// at both moments. changed must return quickly. It replaces the function given before.
type TroubleNotifier interface {
	NotifyTrouble(changed func())
}

// An Examiner is an [Engine] that can check its own set-up. Examine changes
// nothing that a user of the engine could notice, and reports everything that it
// looked at, the fine things too, in a fixed order. What can't be looked at is a
// finding, not an error.
type Examiner interface {
	Examine(ctx context.Context) []Finding
}

// A Noticer is an [Engine] that may have found problems when it was opened. It works in spite of
// them, but a person should look at each.
type Noticer interface {
	Notices() []Finding
}
