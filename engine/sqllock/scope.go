package sqllock

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// bounds keep transactions small.
type bounds struct {
	// head is how many of those who wait in one line are read, from its head on, if it has more.
	// What becomes of them does not depend on those behind.
	head int
	// tip is how many are enough where they wait one after the other: behind one who waits
	// for the path alone nobody can go.
	tip int
	// few is up to how many claims are read before it is asked whether lines are long.
	few int
	// latches bounds the latches of a transaction, which a database keeps in a
	// table of fixed size. Whoever needs more latches the whole tree.
	latches int
}

var usual = bounds{head: 32, tip: 4, few: 1024, latches: 512}

// scope is what a transaction has to know: all that may stand in the way of what it
// decides. Whatever it decides about, it has latched.
type scope struct {
	bounds
	// paths are the targets, latched exclusively; their ancestors are shared. True:
	// what is held below matters too.
	paths     map[lockkeeper.Path]bool
	refs      map[lockkeeper.Ref]bool // claims that are looked for by their names
	begun     map[lockkeeper.Ref]bool // those of them that may be new: others may have named them already
	around    map[lockkeeper.Ref]bool // those in whose holds a claim is made that may begin to wait
	sessions  map[string]bool         // whose rows are read
	entire    map[string]bool         // sessions of which all claims are read
	asked     map[lockkeeper.Path]int // where claims may begin to wait: 2 at these paths, 1 above them
	all       bool                    // the whole tree is latched
	long      bool                    // lines are long
	line      int                     // how many are read of long ones; 0: all
	scattered bool                    // the tips of long lines were not enough
}

func newScope(b bounds) *scope {
	return &scope{
		bounds: b, line: b.head,
		paths:    make(map[lockkeeper.Path]bool),
		refs:     make(map[lockkeeper.Ref]bool),
		begun:    make(map[lockkeeper.Ref]bool),
		around:   make(map[lockkeeper.Ref]bool),
		sessions: make(map[string]bool), entire: make(map[string]bool), asked: make(map[lockkeeper.Path]int),
	}
}

// add takes in where targets may meet others, and reports whether that is new.
// Permits don't meet what is below them (R3).
//
// The root, which only a freeze names, meets all paths: the engine latches everything and reads
// whole queues.
func (s *scope) add(targets []lockkeeper.Target) (wider bool) {
	for _, t := range targets {
		if s.paths[lockkeeper.Root] {
			return wider
		}
		if t.Path == lockkeeper.Root {
			s.all, s.line = true, 0
		}
		below := t.Mode != lockkeeper.ModePermits
		if old, known := s.paths[t.Path]; !known || below && !old {
			s.paths[t.Path] = below
			wider = true
		}
	}
	return wider
}

// ask takes in the targets of a claim that may begin to wait.
func (s *scope) ask(targets []lockkeeper.Target) {
	s.add(targets)
	for _, t := range targets {
		s.asked[t.Path] = 2
		for up := range t.Path.Ancestors() {
			s.asked[up] = max(s.asked[up], 1)
		}
	}
}

// further has more of long lines read, and reports whether there may be more.
func (s *scope) further() bool {
	switch s.line {
	case 0:
		return false
	case s.head:
		s.line = 0
	default:
		s.line, s.scattered = s.head, true
	}
	return true
}

// mayKeepWaiting reports whether c may be in the way of a claim that comes now.
func (s *scope) mayKeepWaiting(c *rows.Claim) bool {
	for _, g := range c.Grants {
		if s.asked[g.Path] > 0 {
			return true
		}
		for up := range g.Path.Ancestors() {
			if s.asked[up] == 2 {
				return true
			}
		}
	}
	return false
}

// addClaim takes in where a claim that is held or waits meets others.
func (s *scope) addClaim(c *rows.Claim) (wider bool) {
	wider = s.add(c.Want.Targets)
	for _, g := range c.Grants {
		wider = s.add([]lockkeeper.Target{g.Target}) || wider
	}
	return wider
}

// latch is one latch of a transaction. Paths share what is above them.
type latch struct {
	path      lockkeeper.Path // "" is the root
	exclusive bool
}

// latches lists what must be latched, in the order of the paths.
func (s *scope) latches() []latch {
	if len(s.paths) == 0 && !s.all {
		return nil
	}
	of := map[lockkeeper.Path]bool{"": s.all}
	for path := range s.paths {
		of[path] = true
		for above := range path.Ancestors() {
			of[above] = of[above] || false
		}
	}
	if s.all || len(of) > s.bounds.latches {
		s.all = true
		return []latch{{"", true}}
	}
	all := make([]latch, 0, len(of))
	for _, path := range slices.Sorted(maps.Keys(of)) {
		all = append(all, latch{path, of[path]})
	}
	return all
}

// region is one part of where targets meet others: it has one line of those who wait.
type region struct {
	path lockkeeper.Path
	part part
}

type part uint8

const (
	at    part = iota // of exactly this path
	above             // of exactly this path, without permits, which don't meet what is below
	below             // of all paths below it
)

// has reports whether a target of that path and mode is in r.
func (r region) has(path lockkeeper.Path, mode lockkeeper.Mode) bool {
	switch r.part {
	case at:
		return path == r.path
	case above:
		return path == r.path && mode != lockkeeper.ModePermits
	}
	return path != r.path && r.path.Covers(path)
}

// span returns the half-open range [low, high) of the paths below r, in the order of their bytes.
func (r region) span() (low, high string) {
	if r.path == lockkeeper.Root {
		return "", pastAll
	}
	return string(r.path) + "/", string(r.path) + "0" // "0" comes after "/"
}

// pastAll comes after every path.
var pastAll = strings.Repeat(string(unicode.MaxRune), lockkeeper.MaxPathBytes/utf8.UTFMax+1)

// regions lists where the targets of s meet others.
func (s *scope) regions() []region {
	of := make(map[region]bool, 2*len(s.paths))
	for path, deep := range s.paths {
		of[region{path, at}] = true
		if deep {
			of[region{path, below}] = true
		}
		for up := range path.Ancestors() {
			if _, target := s.paths[up]; !target {
				of[region{up, above}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(of), func(a, b region) int {
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.path, b.path))
	})
}

// order is the place of a claim in line (R4).
type order struct {
	class    int
	priority int
	ticket   uint64
	ref      lockkeeper.Ref
}

// The classes of the table of targets.
const (
	classHeld       = 0
	classConverting = 1
	classHard       = 2
	classSoft       = 3
	classUnheard    = 4 // ended, and its holder may not know
)

// classOf is c's class; -1 if it concerns nobody any more.
func classOf(c *rows.Claim) int {
	switch {
	case c.ClaimRecord.State == lockkeeper.Ended && c.UnackedUntil > 0:
		return classUnheard
	case c.ClaimRecord.State == lockkeeper.Ended:
		return -1
	case c.Converting:
		return classConverting
	case c.ClaimRecord.State == lockkeeper.Held:
		return classHeld
	case c.Want.WriterPolicy != lockkeeper.Hard:
		return classSoft
	}
	return classHard
}

func orderOf(c *rows.Claim) order {
	return order{classOf(c), c.Want.Priority, c.Ticket, c.Ref}
}

func (a order) compare(b order) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.priority, a.priority), cmp.Compare(a.ticket, b.ticket),
		cmp.Compare(a.ref.Session, b.ref.Session), cmp.Compare(a.ref.ID, b.ref.ID))
}
