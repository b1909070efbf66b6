package table

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestEndsArePacked: a tombstone comes back from its record as it was, whatever it has.
func TestEndsArePacked(t *testing.T) {
	s := &session{id: "s"}
	random := rand.New(rand.NewPCG(1, 0))
	text := func() string { return fmt.Sprintf("%0*d", random.IntN(300), 7)[:random.IntN(2)] }
	var log endLog
	var tombs []*tombstone
	var places []position
	for i := range 1000 {
		tomb := &tombstone{
			id: random.Uint64() >> random.IntN(64), session: s, want: &noTerms, kept: true, ended: &plainEnd,
			at: time.Duration(random.Int64() >> 1), change: random.Uint64(), fence: random.Uint64() >> random.IntN(64),
			reason: lockkeeper.Expired, acked: i%2 == 0, thawed: i%3 == 0,
		}
		if tomb.forget = tomb.at + time.Minute; i%3 > 0 {
			tomb.forget = tomb.at + time.Duration(random.Int32())
		}
		tomb.label = pack(&lockkeeper.Label{As: text(), Note: text(), Link: text()})
		if i%5 == 0 {
			tomb.own().text = "why"
		}
		if i%7 == 0 {
			tomb.want = &terms{Revision: random.Uint64(), Priority: -5, Inside: lockkeeper.Ref{Session: "x", ID: 9}}
		}
		var grants []lockkeeper.Grant
		for k := range i % 4 {
			grants = append(grants, lockkeeper.Grant{Target: exclusive("a/b")})
			if k > 0 || i%8 == 1 {
				grants[k] = lockkeeper.Grant{Target: permits("pool", 1, 1<<31-1), InUse: 4, Slot: random.IntN(9)}
			}
		}
		tomb.setGrants(grants)
		tombs = append(tombs, tomb)
		places = append(places, log.append(log.appendPacked(nil, tomb)))
	}
	for i, tomb := range tombs {
		if got := log.unpack(places[i], s); !reflect.DeepEqual(got, tomb) {
			t.Fatalf("end %d comes back as\n%+v, want\n%+v", i, got, tomb)
		}
	}
	for i := range tombs {
		r := log.front()
		if r.id != tombs[i].id || log.earliest != tombs[i].forget {
			t.Fatalf("end %d is not at the front", i)
		}
		log.drop(r)
	}
	if log.length != 0 || log.size != 0 {
		t.Errorf("%d ends of %d bytes are left", log.length, log.size)
	}
}

// TestEndsArePackedByLoad: a copy of a table that is only ever loaded packs the ends, and forgets nothing
// that the last step of its own still has.
func TestEndsArePackedByLoad(t *testing.T) {
	tb := New()
	w := newWorker(t, tb, "w")
	for range 3 * mostRecent {
		w.claim(0, exclusive("x"))
		w.release(w.id)
	}
	replica, err := Restore(tb.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	e := &replica.sessions["w"].endings
	if len(e.recent) > 0 || e.index.length != 3*mostRecent {
		t.Errorf("%d ends are packed, and %d are not", e.index.length, len(e.recent))
	}
	w.table = replica
	w.claim(0, exclusive("x"))
	for len(e.recent) < mostRecent {
		w.release(w.id)
		w.claim(0, exclusive("x"))
	}
	w.release(w.id) // the last one has to be packed
	if err := replica.Load(Snapshot{Counters: replica.Counters()}); err != nil {
		t.Fatal(err)
	}
	st, known := replica.Status(lockkeeper.Ref{Session: "w", ID: w.id})
	if !known || st.State != lockkeeper.Ended || len(e.recent) > 0 {
		t.Errorf("after a load the last end is %+v; %d are not packed", st, len(e.recent))
	}
	w.claim(0, exclusive("x"))
	if err := replica.Check(); err != nil || len(replica.spare.tombs) != 1 {
		t.Errorf("%d tombstones are spare: %v", len(replica.spare.tombs), err)
	}
}

// TestManyEnds: a session whose client states its lowest open id late, or never, forgets ends early, after
// its TTL, or in between; the table stays whole, and finds exactly those that it has to remember.
func TestManyEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	tb := New()
	w := newWorker(t, tb, "w")
	other := newWorker(t, tb, "other")
	other.claim(0, exclusive("taken"))
	ended := make(map[uint64]time.Duration)
	now, lowest := time.Duration(0), uint64(0)
	for range 3000 {
		now += time.Duration(random.IntN(int(time.Second)))
		w.id++
		id, target, wait := w.id, exclusive("free"), forever
		if random.IntN(4) == 0 {
			target, wait = exclusive("taken"), 0 // refused: it has blockers
		}
		if random.IntN(50) == 0 {
			lowest = id - min(id, uint64(random.IntN(200)))
			w.key.LowestOpen = max(lowest, w.key.LowestOpen)
		}
		step := func(c Command) {
			c.At, c.Key = now, w.key
			if _, err := tb.Step(&c); err != nil {
				t.Fatal(err)
			}
		}
		step(Command{Op: Claim, Want: lockkeeper.Want{ID: id, Wait: wait, Targets: []lockkeeper.Target{target}}})
		if wait != 0 {
			step(Command{Op: End, Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}})
		}
		step(Command{Op: Renew})
		if _, err := tb.Step(&Command{Op: Renew, Key: other.key}); err != nil {
			t.Fatal(err)
		}
		ended[id] = now
		for id, at := range ended {
			st, found := tb.Status(lockkeeper.Ref{Session: "w", ID: id})
			if want := now < at+time.Minute && id >= w.key.LowestOpen; found != want || found && st.State != lockkeeper.Ended {
				t.Fatalf("at %s the end of claim %d at %s is remembered: %t, the lowest open is %d", now, id, at, found,
					w.key.LowestOpen)
			}
			if !found {
				delete(ended, id)
			}
		}
		if random.IntN(20) == 0 {
			if err := tb.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
