package table

import (
	"math/bits"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// A kind is the lock mode of one claim at one node of the tree: the mode of its target there, or an
// intent because it has a target below (R3).
//
// This is multi-granularity locking (Gray, Lorie, Putzolu, Traiger: Granularity of Locks in a
// Shared Data Base, 1975). "+" means that two claims may have these kinds at one node at once:
//
//	     IS  IX  S   X   P
//	IS   +   +   +   -   +
//	IX   +   +   -   -   +
//	S    +   -   +   -   -
//	X    -   -   -   -   -
//	P    +   +   -   -   R7
//
// Towards other kinds permits act as an IX intent; among themselves their units count (R7).
type kind uint8

const (
	kindIS kind = iota // intent: a shared target below
	kindIX             // intent: an exclusive target or permits below
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

// next removes and returns the lowest kind of s; s must not be empty.
func (s *kindSet) next() kind {
	k := kind(bits.TrailingZeros8(uint8(*s)))
	*s &^= k.set()
	return k
}

// conflicts has, for each kind, the kinds that exclude it at one node. It does not list permits
// against permits, because that depends on their units.
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

// kindOf returns the kinds that a mode has at the target's own node and at its ancestors.
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

// intent returns the intent that a target of kind k implies at its ancestors; an intent implies itself.
func (k kind) intent() kind {
	if k == kindS || k == kindIS {
		return kindIS
	}
	return kindIX
}

// mode returns the mode of a target of kind k.
func (k kind) mode() lockkeeper.Mode {
	switch k {
	case kindS:
		return lockkeeper.ModeShared
	case kindP:
		return lockkeeper.ModePermits
	default:
		return lockkeeper.ModeExclusive
	}
}

// matrix draws conflicts in the form of the comment on kind.
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
