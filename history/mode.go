package history

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
)

// kind is how a claim meets others at one path: by its target there, or by the
// intent that a target below leaves on every ancestor (R3).
type kind uint8

const (
	intentShared kind = iota
	intentExclusive
	shared
	permits
	exclusive
	kinds
)

// compatible says which kinds may meet at one path, without the arithmetic of
// permits. It is drawn here once more, apart from the rules of the engines: a
// judge must not ask the accused.
var compatible = [kinds][kinds]bool{
	intentShared:    {intentShared: true, intentExclusive: true, shared: true, permits: true},
	intentExclusive: {intentShared: true, intentExclusive: true, permits: true},
	shared:          {intentShared: true, shared: true},
	permits:         {intentShared: true, intentExclusive: true, permits: true},
	exclusive:       {},
}

func kindOf(m lockkeeper.Mode) (at, above kind) {
	switch m {
	case lockkeeper.ModeShared:
		return shared, intentShared
	case lockkeeper.ModePermits:
		return permits, intentExclusive
	}
	return exclusive, intentExclusive
}

// meet reports whether the targets a and b, of two claims, exclude each other,
// permits of one path left aside.
func meet(a, b lockkeeper.Target) bool {
	atA, aboveA := kindOf(a.Mode)
	atB, aboveB := kindOf(b.Mode)
	switch {
	case a.Path == b.Path:
		return !compatible[atA][atB]
	case a.Path.Covers(b.Path):
		return !compatible[atA][aboveB]
	case b.Path.Covers(a.Path):
		return !compatible[aboveA][atB]
	}
	return false
}

// clash finds a pair of targets, one of a and one of b, that exclude each other.
func clash(a, b []lockkeeper.Target) (string, bool) {
	for _, x := range a {
		for _, y := range b {
			if meet(x, y) {
				return fmt.Sprintf("%s and %s", x, y), true
			}
		}
	}
	return "", false
}

// marks are the kinds that targets leave on their paths and all ancestors.
func marks(targets []lockkeeper.Target, yield func(lockkeeper.Path, kind)) {
	for _, t := range targets {
		at, above := kindOf(t.Mode)
		yield(t.Path, at)
		for p := range t.Path.Ancestors() {
			yield(p, above)
		}
	}
}
