package enginetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// bent is an engine with one fault.
type bent struct {
	lockkeeper.Engine
	session  func(*lockkeeper.Session)
	want     func(*lockkeeper.Want)
	status   func(*lockkeeper.Status)
	key      func(lockkeeper.Key) lockkeeper.Key
	attached func(lockkeeper.Key)
	ignore   func(lockkeeper.Ending) bool
	features lockkeeper.Features // what it claims, though it can do all

	mu   sync.Mutex
	ttls map[string]time.Duration
}

func (b *bent) Guarantees() lockkeeper.Guarantees {
	g := b.Engine.Guarantees()
	if b.features != 0 {
		g.Features = b.features
	}
	return g
}

func (b *bent) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	ttl := s.TTL
	if b.session != nil {
		b.session(&s)
	}
	hint := notify
	if notify != nil && b.status != nil {
		hint = func(statuses []lockkeeper.Status) {
			for i := range statuses {
				b.status(&statuses[i])
			}
			notify(statuses)
		}
	}
	lease, err := b.Engine.Attach(ctx, s, hint)
	b.mu.Lock()
	if b.ttls == nil {
		b.ttls = make(map[string]time.Duration)
	}
	b.ttls[s.ID] = ttl
	if b.attached != nil {
		b.attached(lease.Key)
	}
	b.mu.Unlock()
	return b.lease(lease, s.ID), err
}

func (b *bent) lease(l lockkeeper.Lease, session string) lockkeeper.Lease {
	if b.session != nil { // the client believes in the TTL that it asked for
		b.mu.Lock()
		l.TTL = b.ttls[session]
		b.mu.Unlock()
	}
	for i := range l.Claims {
		if b.status != nil {
			b.status(&l.Claims[i])
		}
	}
	return l
}

func (b *bent) keyOf(k lockkeeper.Key) lockkeeper.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.key != nil {
		return b.key(k)
	}
	return k
}

func (b *bent) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := b.Engine.Renew(ctx, b.keyOf(k))
	return b.lease(lease, k.Session), err
}

func (b *bent) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if b.want != nil {
		w.Targets = append([]lockkeeper.Target(nil), w.Targets...)
		b.want(&w)
	}
	s, err := b.Engine.Claim(ctx, b.keyOf(k), w)
	if b.status != nil {
		b.status(&s)
	}
	return s, err
}

func (b *bent) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	if b.ignore != nil && b.ignore(e) {
		return nil
	}
	return b.Engine.End(ctx, b.keyOf(k), e)
}

// plant is a fault, and the group of the suite that must find it, at least.
type plant struct {
	bend  func(*bent)
	group string
}

// wanting bends what is asked for.
func wanting(change func(*lockkeeper.Want)) func(*bent) {
	return func(b *bent) { b.want = change }
}

// telling bends what is answered.
func telling(change func(*lockkeeper.Status)) func(*bent) {
	return func(b *bent) { b.status = change }
}

// deafTo bends what ends.
func deafTo(e func(lockkeeper.Ending) bool) func(*bent) {
	return func(b *bent) { b.ignore = e }
}

var plants = map[string]plant{
	"exclusive is only shared": {wanting(onlyShared), "Contention"},
	"only the tree counts":     {wanting(onlyTrees), "R3"},
	"spelling is mended":       {wanting(mendedPaths), "R1"},
	"no priorities":            {wanting(func(w *lockkeeper.Want) { w.Priority = 0 }), "R4"},
	"waits have no bound": {wanting(func(w *lockkeeper.Want) {
		w.Wait = max(w.Wait, min(w.Wait, 1)*lockkeeper.Forever)
	}), "R8"},
	"soft is hard":           {wanting(func(w *lockkeeper.Want) { w.WriterPolicy, w.Quiet = lockkeeper.Hard, 0 }), "R9"},
	"nobody is asked":        {wanting(func(w *lockkeeper.Want) { w.Steal, w.After = lockkeeper.NoSteal, 0 }), "R10"},
	"holds are never long":   {wanting(func(w *lockkeeper.Want) { w.MaxHold, w.Grace = 0, 0 }), "R11"},
	"nothing is inside":      {wanting(func(w *lockkeeper.Want) { w.Inside = lockkeeper.Ref{} }), "R15"},
	"one tree is one claim":  {oneTree, "R15"},
	"amendments are lost":    {wanting(func(w *lockkeeper.Want) { w.Revision = 0 }), "R16"},
	"the first limit counts": {firstLimits, "R7"},

	"one fence for all":       {telling(oneFence), "R13"},
	"everything is confirmed": {telling(func(s *lockkeeper.Status) { s.Unconfirmed = false }), "R12"},
	"one reason for all": {telling(func(s *lockkeeper.Status) { s.Reason = min(s.Reason, lockkeeper.Released) }),
		"R17"},
	"slots begin at 0":     {telling(func(s *lockkeeper.Status) { s.Grants = slotless(s.Grants) }), "R7"},
	"nothing is estimated": {telling(func(s *lockkeeper.Status) { s.ETA = 0 }), "R17"},
	"asks are not told":    {telling(func(s *lockkeeper.Status) { s.Asked = nil }), "R18"},

	"releases are not heard": {deafTo(func(e lockkeeper.Ending) bool { return e.Kind == lockkeeper.Release }),
		"Cancellation"},
	"leaving is not heard":    {deafTo(func(e lockkeeper.Ending) bool { return e.Kind == lockkeeper.Leave }), "R11"},
	"operators are not heard": {deafTo(func(e lockkeeper.Ending) bool { return e.Kind == lockkeeper.Revoke }), "R18"},
	"what never was is ended": {deafTo(func(e lockkeeper.Ending) bool { return e.ID > 1<<39 }), "R16"},
	"old keys work":           {oldKeys, "R16"},
	"sessions never expire": {func(b *bent) { b.session = func(s *lockkeeper.Session) { s.TTL = lockkeeper.MaxTTL } },
		"R11"},
	"sessions expire early": {func(b *bent) {
		b.session = func(s *lockkeeper.Session) {
			s.TTL = max(s.TTL/2, lockkeeper.MinTTL)
		}
	}, "R11"},
	"late claims are made":    {forgetful, "R16"},
	"answers always arrive":   {credulous, "R12"},
	"late attaches count":     {lateAttaches, "R19"},
	"what is not named stays": {func(b *bent) { b.session = nameAll }, "R19"},
	"it does more than it says": {func(b *bent) { b.features = lockkeeper.AllFeatures &^ lockkeeper.FeaturePermits },
		"Unsupported"},
}

// oneTree makes of what is inside one claim a line, each claim inside the one
// before it, so that siblings can't wait for each other.
func oneTree(b *bent) {
	var mu sync.Mutex
	last := make(map[lockkeeper.Ref]lockkeeper.Ref) // of what is inside one claim the latest that is held
	b.status = func(s *lockkeeper.Status) {
		mu.Lock()
		defer mu.Unlock()
		if s.State == lockkeeper.Held {
			last[s.Inside] = s.Ref
		}
	}
	b.want = func(w *lockkeeper.Want) {
		mu.Lock()
		defer mu.Unlock()
		if ref, ok := last[w.Inside]; ok && w.Inside != (lockkeeper.Ref{}) {
			w.Inside = ref
		}
	}
}

func onlyShared(w *lockkeeper.Want) {
	for i := range w.Targets {
		if w.Targets[i].Mode == lockkeeper.ModeExclusive && w.Freeze == 0 && w.WriterPolicy == lockkeeper.Hard {
			w.Targets[i].Mode = lockkeeper.ModeShared
		}
	}
}

func onlyTrees(w *lockkeeper.Want) {
	if len(w.Targets) == 1 && w.Targets[0].Path.Valid() {
		w.Targets[0].Path = w.Targets[0].Path.Tree()
	}
}

func mendedPaths(w *lockkeeper.Want) {
	for i, t := range w.Targets {
		if p, err := lockkeeper.ParsePath(string(t.Path)); err == nil {
			w.Targets[i].Path = p
		}
	}
}

func firstLimits(b *bent) {
	var mu sync.Mutex
	limits := make(map[lockkeeper.Path]int)
	b.want = func(w *lockkeeper.Want) {
		mu.Lock()
		defer mu.Unlock()
		for i, t := range w.Targets {
			if t.Mode == lockkeeper.ModePermits && limits[t.Path] == 0 {
				limits[t.Path] = t.Limit
			} else if t.Mode == lockkeeper.ModePermits {
				w.Targets[i].Limit = limits[t.Path]
			}
		}
	}
}

func oldKeys(b *bent) {
	latest := make(map[string]lockkeeper.Key)
	b.attached = func(k lockkeeper.Key) { latest[k.Session] = k }
	b.key = func(k lockkeeper.Key) lockkeeper.Key {
		if now, ok := latest[k.Session]; ok {
			return now
		}
		return k
	}
}

// oneFence gives every grant the same fence, from the seventh on.
func oneFence(s *lockkeeper.Status) { s.Fence = min(s.Fence, 7) }

// forgetful does not heed what keys state to be answered.
func forgetful(b *bent) {
	b.key = func(k lockkeeper.Key) lockkeeper.Key {
		k.LowestOpen = 0
		return k
	}
}

// credulous takes every session for one that never says what it hears.
func credulous(b *bent) {
	b.key = func(k lockkeeper.Key) lockkeeper.Key {
		k.Acked = 0
		return k
	}
}

func lateAttaches(b *bent) {
	var mu sync.Mutex
	latest := make(map[string]uint64)
	b.attached = func(k lockkeeper.Key) {
		mu.Lock()
		defer mu.Unlock()
		latest[k.Session] = k.Epoch
	}
	b.session = func(s *lockkeeper.Session) {
		mu.Lock()
		defer mu.Unlock()
		s.Epoch = latest[s.ID]
	}
}

func nameAll(s *lockkeeper.Session) {
	for id := range uint64(100) {
		s.Named = append(s.Named, id+1)
	}
}

func slotless(grants []lockkeeper.Grant) []lockkeeper.Grant {
	var all []lockkeeper.Grant
	for _, g := range grants {
		g.Slot = max(g.Slot-1, 0)
		all = append(all, g)
	}
	return all
}

const plantVariable = "LOCKKEEPER_TEST_PLANT"

// A suite is worth what it finds: each fault must make it fail, in the group that
// is about it. A test that must fail runs in a process of its own.
func TestPlantedFaults(t *testing.T) {
	if os.Getenv(plantVariable) != "" {
		t.Skip("one planted fault is run")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			run := exec.Command(exe, "-test.run=^TestBent$", "-test.timeout=60s")
			run.Env = append(os.Environ(), plantVariable+"="+name)
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite finds nothing wrong:\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestBent/"+plant.group+"/") {
				t.Errorf("the suite fails, but not in %s:\n%.3000s", plant.group, out)
			}
		})
	}
}

// TestBent runs the suite on the engine whose fault the environment names.
func TestBent(t *testing.T) {
	name := os.Getenv(plantVariable)
	if name == "" {
		t.Skip("run by TestPlantedFaults")
	}
	plant := plants[name]
	enginetest.Run(t, bubble(func() lockkeeper.Engine {
		b := &bent{Engine: memlock.New()}
		plant.bend(b)
		return b
	}))
}
