package quorum

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A player is a session whose client claims, holds, renews and gives up at random. It believes what a
// client may believe: a hold is its own until the lease, an ask or a notice ends it.
type player struct {
	*sim
	at      int
	name    string
	p       *Party
	key     lockkeeper.Key
	epoch   uint64
	ttl     time.Duration
	end     time.Duration // of the lease
	next    uint64
	claims  map[uint64]*played
	pending map[CallID]func(Answer)
	renewAt time.Duration
	actAt   time.Duration
	trying  CallID        // the Attach without an answer
	giveUp  time.Duration // when its caller gives up
}

type played struct {
	status lockkeeper.Status
	path   lockkeeper.Path
	until  time.Duration // by an ask
	want   lockkeeper.Want
	over   bool
	open   bool          // its claim has no answer yet
	stop   time.Duration // when the player releases it
}

func (u *player) call(id CallID, then func(Answer)) { u.pending[id] = then }

// holds reports whether the player believes that it holds the claim.
func (u *player) holds(c *played) bool {
	return !c.over && c.status.State == lockkeeper.Held && u.now < u.end && u.now < c.until
}

func (u *player) learn(st lockkeeper.Status, sent time.Duration) {
	c := u.claims[st.Ref.ID]
	if c == nil || st.Change < c.status.Change {
		return
	}
	if st.State == lockkeeper.Held && c.status.State != lockkeeper.Held {
		u.granted(c, st)
	}
	c.status = st
	if st.State == lockkeeper.Ended {
		c.over = true
	}
	c.until = never
	if st.Asked != nil && st.Asked.Left != lockkeeper.Forever {
		c.until = sent + st.Asked.Left
	}
}

// granted checks that fences rise on each path, in the order in which grants are known.
func (u *player) granted(c *played, st lockkeeper.Status) {
	if st.Fence == 0 {
		u.Fatalf("%s is granted without a fence", st.Ref)
	}
	c.stop = u.now + time.Duration(u.random.Int64N(int64(time.Second)))
	u.grants++
	if owner, taken := u.fences[fenceKey{c.path, st.Fence}]; taken && owner != st.Ref {
		u.Fatalf("fence %d of %s is given to %s and %s", st.Fence, c.path, owner, st.Ref)
	}
	u.fences[fenceKey{c.path, st.Fence}] = st.Ref
}

type fenceKey struct {
	path  lockkeeper.Path
	fence uint64
}

func (u *player) attach() {
	if u.trying != 0 && u.now < u.giveUp {
		return
	}
	u.p.Abandon(u.now, u.trying)
	delete(u.pending, u.trying)
	sent := u.now
	spec := lockkeeper.Session{ID: u.name, TTL: u.ttl, Epoch: u.epoch}
	for _, id := range slices.Sorted(maps.Keys(u.claims)) {
		c := u.claims[id]
		if !c.over && (c.status.State != lockkeeper.Held || u.holds(c)) {
			spec.Named = append(spec.Named, id)
		} else {
			c.over = true
		}
	}
	u.trying, u.giveUp = u.p.Attach(u.now, spec), u.now+u.ttl
	u.call(u.trying, func(a Answer) {
		u.trying = 0
		var e *lockkeeper.Error
		if errors.As(a.Err, &e) && e.Epoch != 0 {
			u.epoch = e.Epoch
			return
		}
		if a.Err != nil {
			return
		}
		u.key, u.epoch = a.Lease.Key, a.Lease.Key.Epoch
		u.lease(a.Lease, sent)
	})
	u.collect(u.p)
}

func (u *player) lease(l lockkeeper.Lease, sent time.Duration) {
	u.end = max(u.end, sent+l.TTL)
	for _, st := range l.Claims {
		u.learn(st, sent)
	}
	u.renewAt = sent + u.ttl/3
}

func (u *player) act() {
	u.actAt = u.now + time.Duration(u.random.Int64N(int64(300*time.Millisecond)))
	for _, id := range slices.Sorted(maps.Keys(u.claims)) {
		c := u.claims[id]
		if c.over {
			delete(u.claims, id)
		}
	}
	if u.now >= u.end && u.key.Epoch != 0 {
		u.key = lockkeeper.Key{}
		for _, id := range slices.Sorted(maps.Keys(u.claims)) {
			c := u.claims[id]
			c.over = true
		}
	}
	if u.key.Epoch == 0 {
		u.attach()
		return
	}
	if u.now >= u.renewAt && u.random.IntN(8) > 0 {
		sent, epoch := u.now, u.key.Epoch
		u.renewAt = u.now + u.ttl/8
		u.call(u.p.Renew(u.now, u.key), func(a Answer) {
			switch {
			case epoch != u.key.Epoch:
			case a.Err != nil:
				u.key = lockkeeper.Key{}
			default:
				u.lease(a.Lease, sent)
			}
		})
		u.collect(u.p)
	}
	for _, id := range slices.Sorted(maps.Keys(u.claims)) {
		c := u.claims[id]
		if u.now >= c.stop && c.stop != 0 && !c.over {
			c.over = true
			u.call(u.p.End(u.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}), func(Answer) {})
			u.collect(u.p)
		}
	}
	if len(u.claims) < 2 {
		u.claim()
	}
}

func (u *player) claim() {
	u.next++
	path := lockkeeper.Path([]string{"a", "b"}[u.random.IntN(2)])
	w := want(string(path), []time.Duration{0, time.Second, lockkeeper.Forever}[u.random.IntN(3)])
	if w.ID = u.next; u.random.IntN(8) == 0 {
		w = want("a b", lockkeeper.Forever)
		w.ID = u.next
	}
	if w.Wait != 0 && u.random.IntN(3) == 0 {
		w.Priority, w.Steal = u.random.IntN(3), lockkeeper.Steal(u.random.IntN(3))
		if w.Steal == lockkeeper.Take {
			w.After = time.Duration(u.random.IntN(3)) * time.Second
		}
	}
	c := &played{path: path, want: w, until: never, open: true}
	if u.random.IntN(4) == 0 {
		c.stop = u.now + time.Duration(u.random.Int64N(int64(2*time.Second)))
	}
	u.claims[w.ID] = c
	sent, epoch := u.now, u.key.Epoch
	u.call(u.p.Claim(u.now, u.key, w), func(a Answer) {
		switch {
		case a.Err != nil && epoch == u.key.Epoch:
			u.key = lockkeeper.Key{}
			c.over = true
		case a.Err == nil:
			u.learn(a.Status, sent)
		}
		c.open = false
		u.raiseLowestOpen()
	})
	u.collect(u.p)
}

// raiseLowestOpen states that all claims below the first one without an answer have one (R16).
func (u *player) raiseLowestOpen() {
	low := u.next + 1
	for id, c := range u.claims { // order does not matter: the lowest counts
		if c.open && !c.over {
			low = min(low, id)
		}
	}
	u.key.LowestOpen = max(u.key.LowestOpen, low)
}

// check fails if two players believe that they hold one path, and the later one does not know that it
// is unconfirmed.
func (s *sim) check(players []*player) {
	holders := map[lockkeeper.Path]*played{}
	for _, u := range players {
		for _, id := range slices.Sorted(maps.Keys(u.claims)) {
			c := u.claims[id]
			if !u.holds(c) {
				continue
			}
			for _, g := range c.status.Grants {
				other := holders[g.Path]
				holders[g.Path] = c
				if other == nil || other.status.Unconfirmed || c.status.Unconfirmed {
					continue
				}
				s.Fatalf("at %s %s is held twice:\n%+v\n%+v", s.now, g.Path, other.status, c.status)
			}
		}
	}
}

// TestPartiesNeverHoldTwice runs players with lost answers and messages, servers that stop and come
// back, and parties that stop for seconds.
func TestPartiesNeverHoldTwice(t *testing.T) {
	first := testmode.Seed(t)
	for round := range testmode.Pick(6, 200) {
		seed := first + uint64(round)
		n := []int{1, 3, 5}[round%3]
		t.Run(fmt.Sprintf("%d servers, seed %d", n, seed), func(t *testing.T) { playRandom(t, n, seed) })
	}
}

func playRandom(t *testing.T, servers int, seed uint64) {
	s := newSim(t, servers, 3, seed)
	s.lose, s.slowest = 0.03, 5*time.Millisecond
	s.fences = make(map[fenceKey]lockkeeper.Ref)
	var players []*player
	for i := range 6 {
		p := s.parties[i%len(s.parties)]
		players = append(players, &player{
			sim: s, at: i, name: fmt.Sprint("s", i), p: p, ttl: 3 * time.Second, end: 0,
			claims: make(map[uint64]*played), pending: make(map[CallID]func(Answer)), actAt: s.now,
		})
	}
	for range testmode.Pick(20_000, 60_000) {
		s.fault()
		s.play(players, time.Millisecond)
	}
	t.Logf("%d grants", s.grants)
	s.mustGoOn(players)
}

// goOnBound is a little longer than sessions whose player died, a wait for the end of a steal, and a slow poll.
const goOnBound = 10 * time.Second

// mustGoOn heals all faults, and then stops one minority of the servers after another. Locks must be
// granted with any majority: also those that waited while a server was away.
func (s *sim) mustGoOn(players []*player) {
	for range 2 {
		for i := range s.servers {
			s.dead[i] = false
			for _, p := range s.parties {
				p.Up(s.now, i)
				s.collect(p)
			}
		}
		clear(s.cut)
		s.play(players, 3*time.Second)
		for _, i := range s.random.Perm(len(s.servers))[:(len(s.servers)-1)/2] {
			s.dead[i] = true
		}
		before := s.grants
		if s.play(players, goOnBound); s.grants == before {
			s.Fatalf("no grant within %s while the servers %v are away", goOnBound, s.dead)
		}
	}
}

// play has the players act for a while.
func (s *sim) play(players []*player, d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.run(time.Millisecond)
		for _, u := range players {
			u.step()
		}
		s.check(players)
	}
}

// step takes what the party says, and acts.
func (u *player) step() {
	if u.now < u.paused[u.p] {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(u.pending)) {
		then := u.pending[id]
		if a, ok := u.answers[u.p][id]; ok {
			delete(u.pending, id)
			then(a)
		}
	}
	for _, st := range u.notices[u.p] {
		if st.Ref.Session == u.name {
			u.learn(st, u.now)
		}
	}
	if u.at >= len(u.parties)*(len(u.parties)-1) || u.at+len(u.parties) >= 6 {
		u.notices[u.p] = nil // the last player of the party has read them
	}
	if u.now >= u.actAt {
		u.act()
	}
}

// fault stops or starts a server, at most a minority, cuts or mends a link between a party and a
// server, or stops a party for a while.
func (s *sim) fault() {
	switch s.random.IntN(1000) {
	case 0:
		if i := s.random.IntN(len(s.servers)); s.dead[i] || s.deadServers() < (len(s.servers)-1)/2 {
			s.dead[i] = !s.dead[i]
			for _, p := range s.parties {
				if s.random.IntN(2) == 0 && s.dead[i] {
					p.Down(s.now, i)
				} else if !s.dead[i] {
					p.Up(s.now, i)
				}
				s.collect(p)
			}
		}
	case 1, 2:
		l := link{s.parties[s.random.IntN(len(s.parties))], s.random.IntN(len(s.servers))}
		s.cut[l] = !s.cut[l]
	case 3:
		s.paused[s.parties[s.random.IntN(len(s.parties))]] = s.now + time.Duration(s.random.Int64N(int64(5*time.Second)))
	}
}

func (s *sim) deadServers() (n int) {
	for _, dead := range s.dead {
		if dead {
			n++
		}
	}
	return n
}
