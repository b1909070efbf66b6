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
	// prefix is how many claims of a long queue a transaction reads, from its front.
	prefix int
	// shortPrefix is how many it reads if one of them seems to exclude all claims behind it.
	shortPrefix int
	// mostClaims is how many claims it reads before it treats queues as long.
	mostClaims int
	// latches bounds the latches of a transaction, because a database keeps them in a table of
	// fixed size. A transaction that needs more latches the whole tree.
	latches int
}

var usual = bounds{prefix: 32, shortPrefix: 4, mostClaims: 1024, latches: 512}

// scope is what a transaction latches and reads: everything that its decisions depend on. It
// latches every path that it decides about.
type scope struct {
	bounds
	// paths are latched exclusively, and their ancestors shared. True: holds below matter too.
	paths      map[lockkeeper.Path]bool
	refs       map[lockkeeper.Ref]bool // claims to read by their references
	begun      map[lockkeeper.Ref]bool // claims in refs that may be new; other claims may be nested in them already
	around     map[lockkeeper.Ref]bool // holds that enclose a claim that may begin to wait
	sessions   map[string]bool         // whose rows are read
	entire     map[string]bool         // sessions of which all claims are read
	asked      map[lockkeeper.Path]int // where claims may begin to wait: 2 at these paths, 1 above them
	all        bool                    // the whole tree is latched
	longQueue  bool                    // queues are long: only their prefixes are read
	limit      int                     // claims to read of a long queue; 0: all
	concurrent bool                    // the short prefixes were not enough
}

func newScope(b bounds) *scope {
	return &scope{
		bounds: b, limit: b.prefix,
		paths:    make(map[lockkeeper.Path]bool),
		refs:     make(map[lockkeeper.Ref]bool),
		begun:    make(map[lockkeeper.Ref]bool),
		around:   make(map[lockkeeper.Ref]bool),
		sessions: make(map[string]bool), entire: make(map[string]bool), asked: make(map[lockkeeper.Path]int),
	}
}

// add adds the paths of targets, and reports whether one is new. Permits don't meet claims below
// them (R3).
//
// The root, which only a freeze names, meets all paths: the engine latches everything and reads
// whole queues.
func (s *scope) add(targets []lockkeeper.Target) (wider bool) {
	for _, t := range targets {
		if s.paths[lockkeeper.Root] {
			return wider
		}
		if t.Path == lockkeeper.Root {
			s.all, s.limit = true, 0
		}
		below := t.Mode != lockkeeper.ModePermits
		if old, known := s.paths[t.Path]; !known || below && !old {
			s.paths[t.Path] = below
			wider = true
		}
	}
	return wider
}

// ask adds the targets of a claim that may begin to wait.
func (s *scope) ask(targets []lockkeeper.Target) {
	s.add(targets)
	for _, t := range targets {
		s.asked[t.Path] = 2
		for up := range t.Path.Ancestors() {
			s.asked[up] = max(s.asked[up], 1)
		}
	}
}

// readMore makes the next attempt read more of long queues. It returns false if all is read.
func (s *scope) readMore() bool {
	switch s.limit {
	case 0:
		return false
	case s.prefix:
		s.limit = 0
	default:
		s.limit, s.concurrent = s.prefix, true
	}
	return true
}

// mayKeepWaiting reports whether c may block the claim of this transaction.
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

// addClaim adds the paths of a claim that is held or waits.
func (s *scope) addClaim(c *rows.Claim) (wider bool) {
	wider = s.add(c.Want.Targets)
	for _, g := range c.Grants {
		wider = s.add([]lockkeeper.Target{g.Target}) || wider
	}
	return wider
}

// latch is one latch of a transaction. Paths share their ancestors.
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
			if !of[above] {
				of[above] = false
			}
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

// region is a set of paths where targets meet others. It has one queue.
type region struct {
	path lockkeeper.Path
	part part
}

type part uint8

const (
	at    part = iota // of exactly this path
	above             // of exactly this path, without permits, which don't meet paths below
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

// order is the position of a claim in a queue (R4).
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
	classUnacked    = 4 // ended, and its holder has not acknowledged it
)

// classOf returns the class of c; -1 if it has no rows of targets any more.
func classOf(c *rows.Claim) int {
	switch {
	case c.ClaimRecord.State == lockkeeper.Ended && c.UnackedUntil > 0:
		return classUnacked
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
