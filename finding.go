package lockkeeper

import "fmt"

// A Finding is the outcome of one check of a set-up.
type Finding struct {
	Check  string `json:"check"`            // the subject, such as "file system"
	Grade  Grade  `json:"grade"`            // the result
	Detail string `json:"detail"`           // what the check found
	Remedy string `json:"remedy,omitempty"` // what to do about it; empty if there is nothing to do
}

// Grade is the result of a check.
type Grade uint8

const (
	// Fine: as it should be.
	Fine Grade = iota
	// Doubtful: it works, but less well or less reliably than it could.
	Doubtful
	// Broken: it does not work, or breaks a promise.
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
