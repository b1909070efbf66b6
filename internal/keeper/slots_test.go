package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestSlotsAreTheTable gives random commands to two keepers. One gets its plain claims by slots, the
// other has them all in its table. Both must grant the same claims, in the same order, with the same
// fences and tickets, and end them for the same reasons.
func TestSlotsAreTheTable(t *testing.T) {
	runs, inSlots, moved := 0, 0, 0
	for seed := range testmode.Seeds(t, testmode.Pick(100, 2000)) {
		runs++
		synctest.Test(t, func(t *testing.T) {
			p := newSlotPair(t, seed)
			for step := 0; step < 400 && !t.Failed(); step++ {
				p.log = append(p.log, "")
				p.command()
				p.compare()
			}
			p.lists(lockkeeper.Query{})
			if t.Failed() {
				t.Logf("replay: %s\n%s", testmode.Replay(t, seed), p.log[max(0, len(p.log)-25):])
			}
			inSlots, moved = inSlots+p.inSlots, moved+p.moved
			for _, k := range p.keepers {
				k.Close()
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d claims in slots, %d of them moved", inSlots, moved)
	if runs > 1 && (inSlots < 30*runs || moved < 5*runs) {
		t.Error("too few of the claims were in slots, or moved")
	}
}

// A slotPair are the two keepers: first the one with slots.
type slotPair struct {
	t       *testing.T
	rand    *rand.Rand
	start   time.Time
	mu      sync.Mutex // guards ended: timers of a keeper may end claims
	keepers [2]*Keeper
	keys    map[string][2]lockkeeper.Key
	slotsOf map[string]lockkeeper.Slots
	owners  map[string]*lockkeeper.SlotOwner
	slots   map[lockkeeper.Ref]*lockkeeper.Slot // those that were taken and not given back
	live    []lockkeeper.Ref
	ended   [2]map[lockkeeper.Ref]lockkeeper.Reason
	ids     uint64
	watch   [2]*watcher
	log     []string
	inSlots int
	moved   int
}

var (
	slotPaths    = []lockkeeper.Path{"a", "a/b", "a/b/c", "a/d", "e", "e/f", "g", "h", "i/j", "i/k"}
	slotSessions = []string{"s1", "s2", "s3", "leased"}
)

func newSlotPair(t *testing.T, seed uint64) *slotPair {
	p := &slotPair{t: t, rand: rand.New(rand.NewPCG(seed, 1)), keys: make(map[string][2]lockkeeper.Key),
		slotsOf: make(map[string]lockkeeper.Slots),
		owners:  make(map[string]*lockkeeper.SlotOwner), slots: make(map[lockkeeper.Ref]*lockkeeper.Slot)}
	p.start = time.Now()
	for i := range p.keepers {
		p.keepers[i] = New(lockkeeper.Guarantees{Features: lockkeeper.TableFeatures, NoExpiry: true, Prompt: true},
			func() time.Duration { return time.Since(p.start) })
		p.ended[i] = make(map[lockkeeper.Ref]lockkeeper.Reason)
	}
	for _, id := range slotSessions {
		p.attach(id, nil)
	}
	return p
}

func (p *slotPair) logf(format string, args ...any) {
	p.log[len(p.log)-1] += "\n" + fmt.Sprintf(format, args...)
}

// attach opens a session in both, or takes it over.
func (p *slotPair) attach(id string, named []uint64) {
	var keys [2]lockkeeper.Key
	var leases [2]lockkeeper.Lease
	for i, k := range p.keepers {
		s := lockkeeper.Session{ID: id, Named: named, Epoch: p.keys[id][i].Epoch}
		if id == "leased" {
			s.TTL = 10 * time.Second
		}
		lease, err := k.Attach(context.Background(), s, func(all []lockkeeper.Status) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, st := range all {
				if st.State == lockkeeper.Ended {
					p.ended[i][st.Ref] = st.Reason
				}
			}
		})
		if err != nil {
			p.t.Errorf("attach %s: %v", id, err)
		}
		keys[i], leases[i] = lease.Key, lease
	}
	p.keys[id] = keys
	p.same("leases", unnumbered(leases[0].Claims), unnumbered(leases[1].Claims))
	p.owners[id] = &lockkeeper.SlotOwner{Moved: func(s *lockkeeper.Slot, st lockkeeper.Status) {
		p.moved++
		if st.Fence != s.Fence || st.Ticket != s.Ticket || st.Ref.ID != s.ID {
			p.t.Errorf("slot %d became %+v", s.ID, st)
		}
	}}
	p.slotsOf[id] = p.keepers[0].OpenSlots(keys[0], lockkeeper.Label{}, p.owners[id])
	if p.keepers[0].slots.shyness = p.rand.IntN(3); p.slotsOf[id] == nil != (id == "leased") {
		p.t.Errorf("session %s has slots: %v", id, p.slotsOf[id] != nil)
	}
}

// command gives both keepers one command.
func (p *slotPair) command() {
	if p.watch[0] != nil && p.rand.IntN(4) == 0 {
		p.watching()
	}
	switch n := p.rand.IntN(400); {
	case n < 180:
		p.plain()
	case n < 355:
		p.release()
	case n < 375:
		d := time.Duration(p.rand.IntN(4000)) * time.Millisecond
		p.logf("%s pass", d)
		time.Sleep(d)
		synctest.Wait()
	case n < 385:
		p.claim()
	default:
		p.rare()
	}
}

func (p *slotPair) rare() {
	switch p.rand.IntN(9) {
	case 0, 1:
		p.operate()
	case 2:
		p.session()
	case 3:
		p.watching()
	case 4:
		p.lists(lockkeeper.Query{Meets: p.path()})
	case 5:
		p.lists(lockkeeper.Query{})
	case 6:
		p.lists(lockkeeper.Query{Session: p.owner()})
	default:
		p.lists(lockkeeper.Query{Ref: p.claimed()})
	}
}

func (p *slotPair) path() lockkeeper.Path { return slotPaths[p.rand.IntN(len(slotPaths))] }
func (p *slotPair) owner() string         { return slotSessions[p.rand.IntN(len(slotSessions))] }

// claimed returns a claim that is live, or else one that was or will be.
func (p *slotPair) claimed() lockkeeper.Ref {
	if len(p.live) > 0 && p.rand.IntN(8) > 0 {
		return p.live[p.rand.IntN(len(p.live))]
	}
	return lockkeeper.Ref{Session: p.owner(), ID: 1 + p.rand.Uint64N(p.ids+6)}
}

// plain makes a plain claim, by a slot if the keeper takes it.
func (p *slotPair) plain() {
	p.ids++
	w := lockkeeper.Want{ID: p.ids, Wait: lockkeeper.Forever}
	w.Targets = []lockkeeper.Target{{Path: p.path(), Mode: lockkeeper.ModeExclusive}}
	switch p.rand.IntN(8) {
	case 0, 1:
		w.Wait = 0
	case 2:
		w.Wait = time.Duration(1+p.rand.IntN(5000)) * time.Millisecond
	}
	ref := lockkeeper.Ref{Session: p.owner(), ID: w.ID}
	if of := p.slotsOf[ref.Session]; of != nil {
		if p.rand.IntN(8) == 0 {
			p.keepers[0].slots.sweepAt = 0 // the next node that is made drops those without claims
		}
		s := &lockkeeper.Slot{ID: w.ID, Owner: p.owners[ref.Session]}
		if state := of.Take(s, w.Targets[0].Path, w.Wait); state != lockkeeper.SlotEmpty {
			p.logf("%s takes a slot of %s, with a wait of %s: %d", ref, s.Path(), w.Wait, state)
			if state == lockkeeper.SlotWaiting && w.Wait != lockkeeper.Forever {
				time.AfterFunc(w.Wait, func() {
					if s.State() == lockkeeper.SlotWaiting {
						of.Move(s)
					}
				})
			}
			p.inSlots++
			p.slots[ref] = s
			p.live = append(p.live, ref)
			if _, err := p.keepers[1].Claim(context.Background(), p.keys[ref.Session][1], w); err != nil {
				p.t.Error(err)
			}
			return
		}
	}
	p.both(ref, w)
}

// both makes a claim at both.
func (p *slotPair) both(ref lockkeeper.Ref, w lockkeeper.Want) {
	var sts [2]lockkeeper.Status
	var errs [2]error
	for i, k := range p.keepers {
		w := w
		w.Targets = slices.Clone(w.Targets)
		sts[i], errs[i] = k.Claim(context.Background(), p.keys[ref.Session][i], w)
	}
	p.logf("%s claims %+v: %s %v", ref, w, sts[1].State, errs[1])
	p.same("answers", unnumbered(sts[:1]), unnumbered(sts[1:]))
	p.sameError(errs[0], errs[1])
	if sts[1].State == lockkeeper.Waiting || sts[1].State == lockkeeper.Held {
		p.live = append(p.live, ref)
	}
}

// claim makes or amends a claim that is not plain.
func (p *slotPair) claim() {
	p.ids++
	w := lockkeeper.Want{ID: p.ids, Wait: lockkeeper.Forever}
	target := lockkeeper.Target{Path: p.path(), Mode: lockkeeper.ModeExclusive}
	switch p.rand.IntN(10) {
	case 0:
		target.Mode = lockkeeper.ModeShared
	case 1:
		target.Mode, target.Units, target.Limit = lockkeeper.ModePermits, 1, 1+p.rand.IntN(3)
	case 2:
		w.Priority = p.rand.IntN(3) - 1
	case 3:
		w.Wait = time.Duration(1+p.rand.IntN(5000)) * time.Millisecond
	case 4:
		w.WriterPolicy, w.Quiet = lockkeeper.Soft, time.Second
	case 5:
		w.Steal, w.After, w.Priority = lockkeeper.Take, time.Second, 1
	case 6:
		w.MaxHold, w.Grace = 2*time.Second, time.Second
	case 7:
		w.Inside = p.claimed()
	case 8:
		w.Expected = 3 * time.Second
	case 9:
		ref := p.claimed()
		w.ID, w.Revision, w.Priority = ref.ID, 1, 2
		w.Targets = []lockkeeper.Target{target}
		p.both(ref, w)
		return
	}
	w.Targets = append(w.Targets, target)
	if other := p.path(); other != target.Path && p.rand.IntN(4) == 0 && w.WriterPolicy != lockkeeper.Soft {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: other, Mode: lockkeeper.ModeExclusive})
	}
	p.both(lockkeeper.Ref{Session: p.owner(), ID: w.ID}, w)
}

// release ends a claim: one in a slot mostly by its slot.
func (p *slotPair) release() {
	ref := p.claimed()
	e := lockkeeper.Ending{Kind: lockkeeper.Release, ID: ref.ID}
	if s := p.slots[ref]; s != nil && p.rand.IntN(10) > 0 {
		was := s.Owner.Slots.Give(s)
		if p.logf("%s gives its slot back: %d", ref, was); was != lockkeeper.SlotMoved {
			if err := p.keepers[1].End(context.Background(), p.keys[ref.Session][1], e); err != nil {
				p.t.Errorf("%s was in a slot: %v", ref, err)
			}
			delete(p.slots, ref)
			if again := s.Owner.Slots.Give(s); again != lockkeeper.SlotOver {
				p.t.Errorf("given twice: %d", again)
			}
			return
		}
	}
	p.end(ref.Session, e)
}

func (p *slotPair) end(session string, e lockkeeper.Ending) {
	var errs [2]error
	for i, k := range p.keepers {
		errs[i] = k.End(context.Background(), p.keys[session][i], e)
	}
	p.logf("%s ends %+v: %v", session, e, errs[1])
	p.sameError(errs[0], errs[1])
}

// operate is what operators do.
func (p *slotPair) operate() {
	switch p.rand.IntN(4) {
	case 0:
		p.ids++
		p.both(lockkeeper.Ref{Session: p.owner(), ID: p.ids}, lockkeeper.Want{ID: p.ids, Freeze: time.Second,
			Targets: []lockkeeper.Target{{Path: p.path(), Mode: lockkeeper.ModeExclusive}}})
	case 1:
		p.end(p.owner(), lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: p.path()})
	default:
		p.end(p.owner(), lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: p.claimed(), Force: p.rand.IntN(3) == 0})
	}
}

// session takes a session over, or leaves it and opens it again.
func (p *slotPair) session() {
	id := p.owner()
	switch p.rand.IntN(4) {
	case 0:
		for i, k := range p.keepers {
			lease, err := k.Renew(context.Background(), p.keys[id][i])
			p.logf("%s renews: %v, %d claims", id, err, len(lease.Claims))
		}
		return
	case 1:
		p.end(id, lockkeeper.Ending{Kind: lockkeeper.Leave})
		p.attach(id, nil)
	default:
		var named []uint64
		for _, ref := range p.live {
			if ref.Session == id && p.rand.IntN(2) == 0 {
				named = append(named, ref.ID)
			}
		}
		p.logf("%s is taken over, with %v", id, named)
		p.attach(id, named)
	}
}

// watching begins or ends a watch.
func (p *slotPair) watching() {
	for i, k := range p.keepers {
		if p.watch[i] != nil {
			k.unwatch(p.watch[i])
			p.watch[i] = nil
			continue
		}
		p.watch[i], _, _, _ = k.look(context.Background(), lockkeeper.Query{Follow: true, Meets: p.path()})
	}
	p.logf("watched: %v", p.watch[0] != nil)
}

// lists compares lists, with evidence.
func (p *slotPair) lists(q lockkeeper.Query) {
	var all [2][]lockkeeper.Status
	for i, k := range p.keepers {
		for st, err := range k.List(context.Background(), q) {
			if err != nil {
				p.t.Error(err)
			}
			all[i] = append(all[i], st)
		}
	}
	p.same("lists", unnumbered(all[0]), unnumbered(all[1]))
}

// unnumbered returns statuses without the numbers of their changes, which count fewer changes where
// claims are in slots, and with their blockers sorted, which are in the order in which the table came
// to know them.
func unnumbered(all []lockkeeper.Status) []lockkeeper.Status {
	for i := range all {
		all[i].Change = 0
		slices.SortStableFunc(all[i].Blockers, func(a, b lockkeeper.Blocker) int {
			return cmp.Or(cmp.Compare(a.Why, b.Why), cmp.Compare(a.Ref.ID, b.Ref.ID))
		})
	}
	return all
}

func (p *slotPair) same(what string, slots, table any) {
	if !reflect.DeepEqual(slots, table) {
		p.t.Errorf("%s differ:\nwith slots    %+v\nwithout slots %+v", what, slots, table)
	}
}

func (p *slotPair) sameError(slots, table error) {
	var a, b *lockkeeper.Error
	if errors.As(slots, &a) != errors.As(table, &b) || a != nil && (a.Err != b.Err || a.Reason != b.Reason) {
		p.t.Errorf("errors differ: with slots %v, without %v", slots, table)
	}
}

// compare compares all claims, and checks the invariants.
func (p *slotPair) compare() {
	p.mu.Lock()
	p.same("ends", p.ended[0], p.ended[1])
	p.mu.Unlock()
	k, other := p.keepers[0], p.keepers[1]
	k.mu.Lock()
	defer k.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	var still []lockkeeper.Ref
	for _, ref := range p.live {
		want, got := liveStatus(other, ref), liveStatus(k, ref)
		s := p.slots[ref]
		if s != nil && s.State() != lockkeeper.SlotMoved {
			if k.table.Live(ref) {
				p.t.Errorf("%s is in a slot and in the table", ref)
			}
			got = lockkeeper.Status{State: lockkeeper.Waiting, Ticket: s.Ticket, Fence: s.Fence}
			if s.State() == lockkeeper.SlotHeld {
				got.State = lockkeeper.Held
			}
		}
		if got.State != want.State || got.Fence != want.Fence || got.Ticket != want.Ticket ||
			got.Unconfirmed != want.Unconfirmed {
			p.t.Errorf("%s with slots: %+v; without: %+v", ref, got, want)
		}
		if s != nil {
			p.ready(s)
		}
		if want.State == lockkeeper.Waiting || want.State == lockkeeper.Held {
			still = append(still, ref)
		}
	}
	p.live = still
	checkSlots(p.t, k)
}

// liveStatus returns the status of a claim in the table; of one that has ended, nothing.
func liveStatus(k *Keeper, ref lockkeeper.Ref) lockkeeper.Status {
	if !k.table.Live(ref) {
		return lockkeeper.Status{}
	}
	st, _ := k.table.Status(ref)
	return st
}

// ready checks that a waiter in a slot hears once that its wait is over. Some waiters do not listen
// for a while, and may be given back before they do.
func (p *slotPair) ready(s *lockkeeper.Slot) {
	w := s.Wait
	if w == nil || w.Received.Load() || p.rand.IntN(4) == 0 {
		return
	}
	select {
	case <-w.Ready:
		if s.State() == lockkeeper.SlotWaiting {
			p.t.Errorf("slot %d still waits, but is ready", s.ID)
		}
		w.Received.Store(true)
	default:
		if s.State() != lockkeeper.SlotWaiting {
			p.t.Errorf("slot %d is not ready in state %d", s.ID, s.State())
		}
	}
}
