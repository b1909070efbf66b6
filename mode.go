package lockkeeper

import "fmt"

// Mode is the kind of access that a target asks for (R2).
type Mode uint8

const (
	// ModeExclusive covers the path and its whole subtree for one claim alone.
	ModeExclusive Mode = iota + 1
	// ModeShared covers the path and its whole subtree for any number of claims.
	ModeShared
	// ModePermits takes a number of units of one path under a limit.
	ModePermits
)

var modeNames = [...]string{ModeExclusive: "exclusive", ModeShared: "shared", ModePermits: "permits"}

func (m Mode) String() string {
	if m < ModeExclusive || m > ModePermits {
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
	return modeNames[m]
}

// MarshalText writes the mode's name; it fails for a value that is no mode.
func (m Mode) MarshalText() ([]byte, error) {
	if m < ModeExclusive || m > ModePermits {
		return nil, invalidf("mode %d is none of exclusive, shared, permits", uint8(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads a mode's name and refuses any other text with [ErrInvalid].
func (m *Mode) UnmarshalText(text []byte) error {
	for i := ModeExclusive; i <= ModePermits; i++ {
		if modeNames[i] == string(text) {
			*m = i
			return nil
		}
	}
	return invalidf("mode %q is none of exclusive, shared, permits", text)
}

// WriterPolicy says how a waiting exclusive claim treats later claims (R9).
type WriterPolicy uint8

const (
	// Hard: later claims that conflict with it wait behind it. The default.
	Hard WriterPolicy = iota
	// Soft: it is ahead of no claim while it waits, so later claims may pass it. With a quiet
	// period the engine grants it only after no conflicting hold has existed for that long.
	Soft
)

func (m WriterPolicy) String() string {
	switch m {
	case Hard:
		return "hard"
	case Soft:
		return "soft"
	}
	return fmt.Sprintf("WriterPolicy(%d)", uint8(m))
}

// Steal says whether a waiting claim asks holders of lower priority to yield (R10).
type Steal uint8

const (
	// NoSteal asks nobody. The default.
	NoSteal Steal = iota
	// Ask asks the holders, and waits as long as they renew.
	Ask
	// Take asks the holders, and after Want.After the engine ends the holds.
	Take
)

func (s Steal) String() string {
	switch s {
	case NoSteal:
		return "none"
	case Ask:
		return "ask"
	case Take:
		return "take"
	}
	return fmt.Sprintf("Steal(%d)", uint8(s))
}
