package table

import (
	"math/bits"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// A kind is what one claim does to one node of the tree: hold or want it by its
// mode, or hold or want an intent on it because of something below (R3).
//
// This is multi-granularity locking (Gray, Lorie, Putzolu, Traiger: Granularity
// of Locks in a Shared Data Base, 1975). "+" means that two claims may meet:
//
//	     IS  IX  S   X   P
//	IS   +   +   +   -   +
//	IX   +   +   -   -   +
//	S    +   -   +   -   -
//	X    -   -   -   -   -
//	P    +   +   -   -   R7
//
// Permits are intents as far as others go; among themselves they count (R7).
type kind uint8

const (
	kindIS kind = iota // something below is wanted shared
	kindIX             // something below is wanted exclusive, or permits of it
	kindS              // shared
	kindX              // exclusive
	kindP              // permits
	kinds
)

var kindNames = [kinds]string{"IS", "IX", "S", "X", "P"}

func (k kind) String() string { return kindNames[k] }

// A kindSet is a set of kinds.
type kindSet uint8

const anyKind kindSet = 1<<kinds - 1

func (k kind) set() kindSet { return 1 << k }

func (s kindSet) has(k kind) bool { return s&k.set() != 0 }

// next takes the lowest kind out of s; s must not be empty.
func (s *kindSet) next() kind {
	k := kind(bits.TrailingZeros8(uint8(*s)))
	*s &^= k.set()
	return k
}

// conflicts says which kinds can't meet each kind on one node. Two permits are
// not in it: whether they meet is counted.
var conflicts = [kinds]kindSet{
	kindIS: 1 << kindX,
	kindIX: 1<<kindS | 1<<kindX,
	kindS:  1<<kindIX | 1<<kindX | 1<<kindP,
	kindX:  anyKind,
	kindP:  1<<kindS | 1<<kindX,
}

// against returns the kinds that may block k on one node, or that k may block.
func against(k kind) kindSet {
	if k == kindP {
		return conflicts[k] | kindP.set()
	}
	return conflicts[k]
}

// kindOf is what a mode does to the target's own node, and to its ancestors.
func kindOf(m lockkeeper.Mode) (target, intent kind) {
	switch m {
	case lockkeeper.ModeShared:
		return kindS, kindIS
	case lockkeeper.ModePermits:
		return kindP, kindIX
	default:
		return kindX, kindIX
	}
}

// matrix draws conflicts as the comment of kind has it.
func matrix() string {
	var b strings.Builder
	b.WriteString("    ")
	for k := range kinds {
		b.WriteString(" " + (k.String() + "  ")[:3])
	}
	for row := range kinds {
		b.WriteString("\n" + (row.String() + "    ")[:4])
		for column := range kinds {
			switch {
			case row == kindP && column == kindP:
				b.WriteString(" R7 ")
			case conflicts[row].has(column):
				b.WriteString(" -  ")
			default:
				b.WriteString(" +  ")
			}
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// incompatible reports whether two targets exclude each other, apart from their units (R3).
func incompatible(a, b lockkeeper.Target) bool {
	k, intentA := kindOf(a.Mode)
	l, intentB := kindOf(b.Mode)
	switch {
	case a.Path == b.Path:
		return conflicts[k].has(l)
	case a.Path.Covers(b.Path):
		return conflicts[k].has(intentB)
	case b.Path.Covers(a.Path):
		return conflicts[l].has(intentA)
	}
	return false
}
