package history

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
)

// kind is the kind of a claim at one path: the mode of its target there, or the intent that a
// target below sets on every ancestor (R3).
type kind uint8

const (
	intentShared kind = iota
	intentExclusive
	shared
	permits
	exclusive
	kinds
)

// compatible is the matrix of kinds that may be held together at one path, without the arithmetic
// of permits. It repeats the matrix of package table on purpose: the judge must not use the code
// that it judges.
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

// meet reports whether targets a and b of two claims exclude each other, except for permits of one
// path.
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

// clash returns a pair of targets, one of a and one of b, that exclude each other.
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

// marks yields the kinds that targets set on their paths and all ancestors.
func marks(targets []lockkeeper.Target, yield func(lockkeeper.Path, kind)) {
	for _, t := range targets {
		at, above := kindOf(t.Mode)
		yield(t.Path, at)
		for p := range t.Path.Ancestors() {
			yield(p, above)
		}
	}
}
