package lockkeeper

import "fmt"

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
