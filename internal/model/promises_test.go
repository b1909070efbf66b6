package model_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/table"
)

// TestPromisesOutliveRestarts plays clients, an engine and its journal, with answers lost, entries
// of the journal lost, and restarts in any order: as long as a client may count on its hold, nobody
// else is told of one on the same path (P3, R19).
func TestPromisesOutliveRestarts(t *testing.T) {
	for _, rules := range []struct {
		name string
		new  func() rules
	}{
		{"table", func() rules { return table.New() }},
		{"model", func() rules { return model.New() }},
	} {
		for seed := range testmode.Seeds(t, testmode.Pick(4000, 100_000)) {
			if wrong := newWorld(seed, rules.new).play(150); wrong != "" {
				t.Errorf("%s: %s\nreplay: %s", rules.name, wrong, testmode.Replay(t, seed))
				break
			}
		}
	}
}

// TestPromisesNeedSafeAttaches: with an engine that answers an Attach before the journal has it
// safe, two clients hold one path in one of the same worlds. So the worlds can tell.
func TestPromisesNeedSafeAttaches(t *testing.T) {
	for seed := range uint64(4000) {
		w := newWorld(seed, func() rules { return table.New() })
		w.hasty = true
		if w.play(150) != "" {
			return
		}
	}
	t.Error("nothing goes wrong when attaches are answered too early")
}

// rules are the table or the model.
type rules interface {
	Step(*table.Command) (table.Reply, error)
	Events() []table.Event
}

// A world is an engine with its journal, and its clients. Real time goes on always, the
// engine's only while the engine runs.
type world struct {
	*rand.Rand
	newRules func() rules
	hasty    bool // answers are given before the journal has the entry safe
	real     time.Duration
	rules    rules
	base     time.Duration // the engine's time less real time
	journal  []table.Command
	safe     int // entries that can't be lost any more
	answers  []answer
	clients  []*client
	wrong    string
}

// An answer waits until the entry is safe that it follows from. Of a grant it is news.
type answer struct {
	entry int
	give  func()
}

// A client is one session. It counts from when it sent what was answered.
type client struct {
	key      lockkeeper.Key
	id       string
	ttl      time.Duration
	dead     bool
	follows  uint64                     // the epoch that its next attach follows
	deadline time.Duration              // in real time: it may count on its holds until then
	next     uint64                     // id of its next claim
	claimed  map[uint64]lockkeeper.Path // what it claimed and did not release
	held     map[uint64]bool            // what it was told that it holds
}

func newWorld(seed uint64, newRules func() rules) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), newRules: newRules, rules: newRules()}
	for i := range 3 {
		w.clients = append(w.clients, &client{
			id: string(rune('a' + i)), ttl: time.Duration(2+w.IntN(8)) * time.Second,
			claimed: make(map[uint64]lockkeeper.Path), held: make(map[uint64]bool),
		})
	}
	return w
}

// play does n random steps, and says what went wrong.
func (w *world) play(n int) string {
	for range n {
		c := w.clients[w.IntN(len(w.clients))]
		switch p := w.IntN(100); {
		case p < 30:
			w.real += time.Duration(w.IntN(15)) * 100 * time.Millisecond
		case p < 45:
			w.sync(w.safe + w.IntN(len(w.journal)-w.safe+1))
		case p < 50:
			w.restart()
		case p < 52:
			c.dead = !c.dead // or it stood still for a while
		case p < 55:
			w.step(table.Command{Op: table.Pass}) // the engine records its time
		case c.dead:
		case c.key.Epoch == 0 || p < 60:
			w.attach(c)
		case p < 80:
			w.renew(c)
		case p < 95:
			w.claim(c)
		default:
			w.release(c)
		}
		if w.believers(); w.wrong != "" {
			return w.wrong
		}
	}
	return ""
}

// believers finds two clients that count on holds of one path.
func (w *world) believers() {
	by := make(map[lockkeeper.Path]string)
	for _, c := range w.clients {
		for id := range c.held { // order does not matter: any two are one too many
			path := c.claimed[id]
			if w.real >= c.deadline || path == "" {
				continue
			}
			if other := by[path]; other != "" && other != c.id {
				w.wrong = fmt.Sprintf("at %s, %s and %s both count on %s", w.real, other, c.id, path)
			}
			by[path] = c.id
		}
	}
}

// step applies a command and journals it.
func (w *world) step(c table.Command) (table.Reply, error) {
	c.At = w.base + w.real
	reply, err := w.rules.Step(&c)
	events := w.rules.Events()
	if err != nil {
		c = table.Command{Op: table.Pass, At: c.At}
	}
	w.journal = append(w.journal, c)
	for _, e := range events {
		if e.Kind == table.Granted {
			w.later(false, func() { w.tellGrant(e.Ref) })
		}
	}
	return reply, err
}

// later gives an answer when the latest entry is safe, or now if that is not waited for.
// Some answers are lost.
func (w *world) later(now bool, give func()) {
	switch {
	case w.IntN(5) == 0:
	case now:
		give()
	default:
		w.answers = append(w.answers, answer{len(w.journal), give})
	}
}

func (w *world) tellGrant(ref lockkeeper.Ref) {
	for _, c := range w.clients {
		if c.id == ref.Session && !c.dead {
			c.held[ref.ID] = c.claimed[ref.ID] != ""
		}
	}
}

// sync has the journal safe up to an entry, and gives the answers that waited for it.
func (w *world) sync(upTo int) {
	w.safe = upTo
	for len(w.answers) > 0 && w.answers[0].entry <= w.safe {
		give := w.answers[0].give
		w.answers = w.answers[1:]
		give()
	}
}

// restart ends the engine: entries that are not safe may be lost, the last ones first. The next one
// replays the rest, and time goes on from the last of them.
func (w *world) restart() {
	w.journal = w.journal[:w.safe+w.IntN(len(w.journal)-w.safe+1)]
	w.answers = nil
	w.rules = w.newRules()
	now := time.Duration(0)
	for i := range w.journal {
		c := w.journal[i]
		now = max(now, c.At)
		_, _ = w.rules.Step(&c) // refused ones are not in it
	}
	w.real += time.Duration(w.IntN(5)) * 100 * time.Millisecond // nobody is there
	w.base = now - w.real
	w.step(table.Command{Op: table.Restart})
	w.safe = len(w.journal)
}

// attach attaches c, which starts a new session if its own is gone.
func (w *world) attach(c *client) {
	sent := w.real
	s := lockkeeper.Session{ID: c.id, TTL: c.ttl, Epoch: c.follows}
	for id := range c.claimed {
		s.Named = append(s.Named, id)
	}
	slices.Sort(s.Named)
	reply, err := w.step(table.Command{Op: table.Attach, Session: s})
	w.later(w.hasty, func() {
		if err != nil {
			// It attaches again, behind the one whose answer was lost. Before that it does not
			// renew: the session of that epoch may be a new one, which has none of its holds.
			c.follows = err.(*lockkeeper.Error).Epoch
			return
		}
		c.key, c.follows = reply.Lease.Key, reply.Lease.Key.Epoch
		c.hear(sent, reply.Lease)
		known := make(map[uint64]bool)
		for _, st := range reply.Lease.Claims {
			known[st.Ref.ID] = st.State != lockkeeper.Ended
		}
		for id := range c.held { // order does not matter: each by itself
			if !known[id] {
				delete(c.held, id)
			}
		}
	})
}

// hear takes in until when c may count on its holds.
func (c *client) hear(sent time.Duration, l lockkeeper.Lease) {
	if !c.dead {
		c.deadline = max(c.deadline, sent+l.TTL)
	}
}

// renew is answered at once, and may be lost after that.
func (w *world) renew(c *client) {
	sent := w.real
	reply, err := w.step(table.Command{Op: table.Renew, Key: c.key})
	w.later(true, func() {
		if err == nil {
			c.hear(sent, reply.Lease)
		} else {
			w.attach(c)
		}
	})
}

func (w *world) claim(c *client) {
	c.next++
	id, path := c.next, []lockkeeper.Path{"x", "y"}[w.IntN(2)]
	c.claimed[id] = path
	want := lockkeeper.Want{
		ID:      id,
		Wait:    lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
	}
	if _, err := w.step(table.Command{Op: table.Claim, Key: c.key, Want: want}); err != nil {
		delete(c.claimed, id)
	}
}

// release is answered at once, and may be lost after that.
func (w *world) release(c *client) {
	ids := slices.Sorted(maps.Keys(c.claimed))
	if len(ids) == 0 {
		return
	}
	delete(c.claimed, ids[0])
	delete(c.held, ids[0])
	_, _ = w.step(table.Command{
		Op:     table.End,
		Key:    c.key,
		Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: ids[0]},
	})
}
