package quorum

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A bug is planted into the world, to see that the model finds it.
type bug struct {
	noWait  bool // a server that lost its data takes part at once (condition 2a)
	noFloor bool // it starts with floor 0 (condition 2b)
	few     bool // it asks a minority for sessions and floors

	party   func(*Party)
	onReply func(*world, *process, *envelope)                 // before the party gets a reply
	onState func(*world, *process, *ClaimState)               // before it gets a state in a reply or message
	apply   func(*Server, Micros, Request) (Reply, []Message) // instead of Server.Apply
}

// planted is a bug that the model must find within twice this number of seeds, counted from 1.
type planted struct {
	name  string
	seeds uint64
	bug   bug
	scope func(*scope)
}

func three(sc *scope) {
	sc.servers, sc.paths, sc.broken = 3, []string{"a"}, false
	sc.ppm = min(sc.ppm, 9900)
}

func lossy(sc *scope) { three(sc); sc.lossy = true }

func stealing(sc *scope) { three(sc); sc.steals, sc.factor1 = true, true }

func robbing(sc *scope) { three(sc); sc.steals, sc.factor1 = true, false }

func restless(sc *scope) { three(sc); sc.paths = []string{"a", "b"} }

var plantedBugs = []planted{
	{"a steal overwrites the record at once", 200, bug{apply: stealAtOnce}, stealing},
	{"a thief that is robbed does not learn of it and keeps acting", 400, bug{onState: hideAsksOfThieves}, stealing},
	{"a server that lost its data does not wait for the leases", 3000, bug{noWait: true}, lossy},
	{"a server that lost its data does not take the highest floor", 600, bug{noFloor: true}, lossy},
	{"Renew revives a session that has ended", 3000, bug{apply: reviving()}, robbing},
	{"a claim is granted without stamping", 200, bug{apply: stampNothing}, restless},
	{"a server that lost its data asks a minority of the others", 1000, bug{few: true}, lossy},
	{"a vote counts after it was returned", 1000, bug{onReply: countReturned}, three},
	{"a minority grants", 300, bug{party: func(p *Party) { p.majority = max(1, p.n/2) }}, three},
}

func stealAtOnce(s *Server, now Micros, r Request) (Reply, []Message) {
	if r.Kind == Claim && r.Want.Steal == lockkeeper.Take {
		r.Want.After, r.Want.AfterTTL = 0, 0
	}
	return s.Apply(now, r)
}

func hideAsksOfThieves(w *world, p *process, c *ClaimState) {
	if x := p.client.wish(c.ID); x != nil && x.want.Steal == lockkeeper.Take {
		c.Ask = nil
	}
}

// evict takes the votes of other claims for the paths of a claim.
func (s *Server) evict(ref lockkeeper.Ref, paths []string) {
	for _, name := range paths {
		if p := s.paths[name]; p != nil && p.holder != nil && p.holder.ref != ref {
			s.finish(p.holder, lockkeeper.Expired)
		}
	}
}

// restoreOver sets records over other holders (condition 3 left out).
func restoreOver(s *Server, now Micros, r Request) (Reply, []Message) {
	if r.Kind == Restore {
		s.changed = map[*serverClaim]bool{}
		for i, c := range r.Restore.Claims {
			if c.Fence > 0 {
				s.evict(lockkeeper.Ref{Session: r.Session, ID: c.ID}, c.Want.Paths)
				r.Restore.Claims[i].Above = s.floor
			}
		}
	}
	return s.Apply(now, r)
}

// reviving returns a server that remembers the holds of ended sessions, and sets them again when a
// Renew arrives.
func reviving() func(*Server, Micros, Request) (Reply, []Message) {
	type key struct {
		server  *Server
		session string
	}
	holds := map[key]*RestoreRequest{}
	return func(s *Server, now Micros, r Request) (Reply, []Message) {
		k := key{s, r.Session}
		if e := s.sessions[r.Session]; e != nil && e.until > now && r.Kind != List {
			kept := &RestoreRequest{TTL: e.ttl, To: e.to}
			for _, c := range e.claims {
				if c.vote != 0 {
					kept.Claims = append(kept.Claims, RestoreClaim{ID: c.ref.ID, Want: c.want, Fence: c.vote})
				}
			}
			holds[k] = kept
		}
		reply, messages := s.Apply(now, r)
		if r.Kind == Renew && reply.Outcome == NoSession && holds[k] != nil {
			revived := Request{Kind: Restore, Session: r.Session, Epoch: r.Epoch, Restore: *holds[k]}
			return restoreOver(s, now, revived)
		}
		return reply, messages
	}
}

func stampNothing(s *Server, now Micros, r Request) (Reply, []Message) {
	if r.Kind != Stamp {
		return s.Apply(now, r)
	}
	fence := r.Fence
	r.Fence = 0
	reply, messages := s.Apply(now, r)
	if len(reply.Claims) > 0 && reply.Claims[0].Vote == r.Vote {
		reply.Outcome, reply.Claims[0].Counter = Done, fence
	}
	return reply, messages
}

func countReturned(_ *world, p *process, e *envelope) {
	for _, s := range p.party.sessions {
		for _, c := range s.claims {
			c.at[e.server].gone = 0
		}
	}
}

// TestModelFindsPlantedBugs plants bugs that the protocol must not have: the random schedules reach
// the states in which they do harm. The same schedules pass without the bug.
func TestModelFindsPlantedBugs(t *testing.T) {
	for _, b := range plantedBugs {
		t.Run(b.name, func(t *testing.T) {
			if b.seeds > 600 {
				testmode.NeedLong(t, "it takes many seeds; the other bugs show the same promises broken")
			}
			most, steps := 2*b.seeds, 0
			for seed := range most {
				w, wrong := play(seed+1, b.bug, false, b.scope)
				steps += w.steps
				if wrong != "" {
					if _, wrong := play(seed+1, bug{}, false, b.scope); wrong != "" {
						t.Fatalf("seed %d fails without the bug, too: %s", seed+1, wrong)
					}
					t.Logf("found by seed %d after %d steps: %s", seed+1, steps, wrong)
					return
				}
			}
			t.Errorf("not found in %d seeds", most)
		})
	}
}
