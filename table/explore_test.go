package table

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
)

// TestExplore looks at every sequence of commands that three sessions can give
// on a path and its child, six commands each, breadth first: at every state that
// any sequence leads to, once, until there are enough of them. States that differ only in numbers
// that no rule looks at count as one. Each new state must satisfy Check, and
// the test restores it from its own snapshot before it applies the next command.
func TestExplore(t *testing.T) {
	states := testmode.Pick(200_000, 5_000_000)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // it makes garbage and little else
	x := &explorer{seed: maphash.MakeSeed(), want: states}
	x.frontier = []trail{nil}
	for depth := 1; len(x.frontier) > 0 && x.count < states; depth++ {
		x.expand(t)
		t.Logf("depth %d: %d states, %d steps", depth, x.count, x.steps)
		if t.Failed() {
			return
		}
	}
	if x.count < states && len(x.frontier) > 0 {
		t.Errorf("only %d states of %d", x.count, states)
	}
}

// A path of moves leads from the empty table to a state.
type trail []move

// A move is one command of one session about one path.
type move struct {
	session, path uint8
	verb          verb
}

type verb uint8

const (
	takeExclusive verb = iota
	takeShared
	takePermit
	steal
	convert
	release
	verbs
)

var verbNames = [verbs]string{"exclusive", "shared", "permit", "steal", "convert", "release"}

const explorers = 3

var explored = [...]lockkeeper.Path{"a", "a/b"}

// nestings say in whose hold each claim is made: two sessions have trees of their
// own, and what the third one has is inside the second one's.
var nestings = [explorers][len(explored)]lockkeeper.Ref{
	{{}, {Session: "a", ID: 1}},
	{{}, {Session: "b", ID: 1}},
	{{Session: "b", ID: 2}, {Session: "c", ID: 1}},
}

type explorer struct {
	seed     maphash.Seed
	seen     [256]seen
	want     int
	mu       sync.Mutex // guards those below
	count    int
	steps    int
	frontier []trail
}

// seen is one part of the fingerprints of all states.
type seen struct {
	mu  sync.Mutex
	set map[uint64]struct{}
}

// start is the table at which all trails begin: three sessions, nothing else.
func (x *explorer) start() *Table {
	t := New()
	for i := range explorers {
		if _, err := t.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: string(rune('a' + i))}}); err != nil {
			panic(err)
		}
	}
	return t
}

// play goes along a trail.
func (x *explorer) play(tr trail) *Table {
	t := x.start()
	for _, m := range tr {
		t.do(m)
	}
	return t
}

// allows reports whether m can be made: no second claim of one session for one
// path, no release or conversion of what is not there.
func (t *Table) allows(m move) bool {
	old := t.sessions[string(rune('a'+m.session))].claim(uint64(m.path) + 1)
	switch m.verb {
	case convert:
		return old != nil && !old.waiting() && old.modes()[0] != lockkeeper.ModePermits
	case release:
		return old != nil
	}
	return old == nil
}

// do makes a move that is allowed.
func (t *Table) do(m move) {
	s := t.sessions[string(rune('a'+m.session))]
	c := Command{Key: lockkeeper.Key{Session: s.id, Epoch: s.epoch}}
	id := uint64(m.path) + 1
	target := lockkeeper.Target{Path: explored[m.path], Mode: lockkeeper.ModeExclusive}
	c.Op, c.Want = Claim, lockkeeper.Want{ID: id, Wait: lockkeeper.Forever}
	c.Want.Inside = nestings[m.session][m.path]
	switch m.verb {
	case takeShared:
		target.Mode = lockkeeper.ModeShared
	case takePermit:
		target.Mode, target.Units, target.Limit = lockkeeper.ModePermits, 1, 1+int(m.session%2)
	case steal:
		c.Want.Steal, c.Want.Priority = lockkeeper.Ask, 1
	case convert:
		c.Want = s.claim(id).request()
		c.Want.Revision++
		if s.claim(id).modes()[0] == lockkeeper.ModeExclusive {
			target.Mode = lockkeeper.ModeShared
		}
	case release:
		c.Op, c.Ending = End, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}
	}
	c.Want.Targets = []lockkeeper.Target{target}
	if _, err := t.Step(&c); err != nil {
		panic(fmt.Sprintf("%s: %v", trail{m}, err))
	}
}

// expand makes every move from every state of the frontier.
func (x *explorer) expand(t *testing.T) {
	frontier := x.frontier
	x.frontier = nil
	var wg sync.WaitGroup
	work := make(chan []trail)
	for range 2 {
		wg.Go(func() {
			for part := range work {
				for _, tr := range part {
					x.expandOne(t, tr)
				}
			}
		})
	}
	for part := range slices.Chunk(frontier, 256) {
		if x.enough() || t.Failed() {
			break
		}
		work <- part
	}
	close(work)
	wg.Wait()
}

func (x *explorer) enough() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count >= x.want
}

func (x *explorer) expandOne(t *testing.T, tr trail) {
	base := x.play(tr)
	steps := 0
	for session := range uint8(explorers) {
		for path := range uint8(len(explored)) {
			for v := range verbs {
				m := move{session, path, v}
				if !base.allows(m) {
					continue
				}
				tb := base.clone()
				tb.do(m)
				steps++
				if next, ok := x.add(tb, tr, m); ok && !x.judge(t, tb, next) {
					return
				}
			}
		}
	}
	x.mu.Lock()
	x.steps += steps
	x.mu.Unlock()
}

// judge holds a new state against Check, and one in a hundred against what its snapshot restores.
func (x *explorer) judge(t *testing.T, tb *Table, tr trail) bool {
	if err := tb.Check(); err != nil {
		t.Errorf("%s: %v", tr, err)
		return false
	}
	if print := tb.fingerprint(x.seed); print%100 == 0 {
		twin, err := Restore(tb.Snapshot())
		if err != nil || twin.fingerprint(x.seed) != print {
			t.Errorf("%s: its snapshot restores another table: %v", tr, err)
			return false
		}
	}
	return true
}

// add notes the state that m leads to from the end of tr; true if it is new.
func (x *explorer) add(t *Table, tr trail, m move) (trail, bool) {
	print := t.fingerprint(x.seed)
	part := &x.seen[print%uint64(len(x.seen))]
	part.mu.Lock()
	if part.set == nil {
		part.set = make(map[uint64]struct{})
	}
	_, old := part.set[print]
	part.set[print] = struct{}{}
	part.mu.Unlock()
	if old {
		return nil, false
	}
	next := append(slices.Clone(tr), m)
	x.mu.Lock()
	x.count++
	x.frontier = append(x.frontier, next)
	x.mu.Unlock()
	return next, true
}

func (tr trail) String() string {
	var said []string
	for _, m := range tr {
		said = append(said, fmt.Sprintf("%c %s %s", 'a'+m.session, verbNames[m.verb], explored[m.path]))
	}
	return strings.Join(said, ", ")
}

// fingerprint is a hash of all that the rules look at: of tickets and fences
// only their order.
func (t *Table) fingerprint(seed maphash.Seed) uint64 {
	var room [512]byte
	b := room[:0]
	claims := t.everyClaim()
	rank := func(number func(*claim) uint64, c *claim) byte {
		r := byte(0)
		for _, d := range claims {
			if number(d) < number(c) {
				r++
			}
		}
		return r
	}
	for _, c := range claims {
		b = append(b, c.session().id...)
		b = append(b, byte(c.id), byte(len(c.held())), byte(len(c.wanted())), byte(c.want.Priority), byte(c.want.Steal),
			byte(c.undone), byte(len(c.asks)))
		b = append(b, rank(func(c *claim) uint64 { return c.ticket }, c), rank(func(c *claim) uint64 { return c.fence }, c))
		targets := c.request().Targets
		for i, g := range c.grants() {
			b = append(b, byte(g.Mode), byte(targets[i].Mode), byte(g.Limit), byte(g.InUse), byte(g.Slot))
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(b)))
	}
	return maphash.Bytes(seed, b)
}
