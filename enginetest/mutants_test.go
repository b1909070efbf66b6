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

// mutant is an engine with one fault.
type mutant struct {
	lockkeeper.Engine
	session  func(*lockkeeper.Session)
	want     func(*lockkeeper.Want)
	status   func(*lockkeeper.Status)
	key      func(lockkeeper.Key) lockkeeper.Key
	attached func(lockkeeper.Key)
	ignore   func(lockkeeper.Ending) bool
	features lockkeeper.Features // the features it claims, although it has all

	mu   sync.Mutex
	ttls map[string]time.Duration
}

func (b *mutant) Guarantees() lockkeeper.Guarantees {
	g := b.Engine.Guarantees()
	if b.features != 0 {
		g.Features = b.features
	}
	return g
}

func (b *mutant) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
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

func (b *mutant) lease(l lockkeeper.Lease, session string) lockkeeper.Lease {
	if b.session != nil { // the client gets the TTL that it asked for
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

func (b *mutant) keyOf(k lockkeeper.Key) lockkeeper.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.key != nil {
		return b.key(k)
	}
	return k
}

func (b *mutant) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := b.Engine.Renew(ctx, b.keyOf(k))
	return b.lease(lease, k.Session), err
}

func (b *mutant) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
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

func (b *mutant) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	if b.ignore != nil && b.ignore(e) {
		return nil
	}
	return b.Engine.End(ctx, b.keyOf(k), e)
}

// fault is a change of an engine, and a group of the suite that must find it.
type fault struct {
	change func(*mutant)
	group  string
}

// changingWant makes a mutant that changes each want.
func changingWant(change func(*lockkeeper.Want)) func(*mutant) {
	return func(b *mutant) { b.want = change }
}

// changingStatus makes a mutant that changes each status.
func changingStatus(change func(*lockkeeper.Status)) func(*mutant) {
	return func(b *mutant) { b.status = change }
}

// ignoring makes a mutant that ignores some endings.
func ignoring(e func(lockkeeper.Ending) bool) func(*mutant) {
	return func(b *mutant) { b.ignore = e }
}

var faults = map[string]fault{
	"exclusive is only shared": {changingWant(onlyShared), "Contention"},
	"only the tree counts":     {changingWant(onlyTrees), "R3"},
	"paths are corrected":      {changingWant(correctedPaths), "R1"},
	"no priorities":            {changingWant(func(w *lockkeeper.Want) { w.Priority = 0 }), "R4"},
	"waits have no bound": {changingWant(func(w *lockkeeper.Want) {
		w.Wait = max(w.Wait, min(w.Wait, 1)*lockkeeper.Forever)
	}), "R8"},
	"soft is hard": {changingWant(func(w *lockkeeper.Want) { w.WriterPolicy, w.Quiet = lockkeeper.Hard, 0 }),
		"R9"},
	"holders are not asked":  {changingWant(func(w *lockkeeper.Want) { w.Steal, w.After = lockkeeper.NoSteal, 0 }), "R10"},
	"holds are never long":   {changingWant(func(w *lockkeeper.Want) { w.MaxHold, w.Grace = 0, 0 }), "R11"},
	"nothing is inside":      {changingWant(func(w *lockkeeper.Want) { w.Inside = lockkeeper.Ref{} }), "R15"},
	"one tree is one claim":  {chained, "R15"},
	"amendments are lost":    {changingWant(func(w *lockkeeper.Want) { w.Revision = 0 }), "R16"},
	"the first limit counts": {firstLimits, "R7"},

	"fences of each path": {changingStatus(fencesByPath), "R13"},
	"parts of a TTL are whole": {changingWant(func(w *lockkeeper.Want) {
		if w.AfterTTL != 0 {
			w.AfterTTL = lockkeeper.MaxAfterTTL
		}
	}), "R10"},
	"one fence for all":       {changingStatus(oneFence), "R13"},
	"everything is confirmed": {changingStatus(func(s *lockkeeper.Status) { s.Unconfirmed = false }), "R12"},
	"one reason for all": {changingStatus(func(s *lockkeeper.Status) { s.Reason = min(s.Reason, lockkeeper.Released) }),
		"R17"},
	"slots begin at 0":      {changingStatus(func(s *lockkeeper.Status) { s.Grants = slotless(s.Grants) }), "R7"},
	"nothing is estimated":  {changingStatus(func(s *lockkeeper.Status) { s.ETA = 0 }), "R17"},
	"asks are not reported": {changingStatus(func(s *lockkeeper.Status) { s.Asked = nil }), "R18"},

	"releases are ignored": {ignoring(func(e lockkeeper.Ending) bool { return e.Kind == lockkeeper.Release }),
		"Cancellation"},
	"leaving is ignored": {ignoring(func(e lockkeeper.Ending) bool {
		return e.Kind == lockkeeper.Leave
	}), "R11"},
	"operators are ignored": {ignoring(func(e lockkeeper.Ending) bool {
		return e.Kind == lockkeeper.Revoke
	}), "R18"},
	"endings of unknown claims are ignored": {ignoring(func(e lockkeeper.Ending) bool { return e.ID > 1<<39 }), "R16"},
	"old keys work":                         {oldKeys, "R16"},
	"sessions never expire": {func(b *mutant) { b.session = func(s *lockkeeper.Session) { s.TTL = lockkeeper.MaxTTL } },
		"R11"},
	"sessions expire early": {func(b *mutant) {
		b.session = func(s *lockkeeper.Session) {
			s.TTL = max(s.TTL/2, lockkeeper.MinTTL)
		}
	}, "R11"},
	"late claims are accepted":            {ignoresLowestOpen, "R16"},
	"every answer counts as acknowledged": {neverAcks, "R12"},
	"late attaches are accepted":          {lateAttaches, "R19"},
	"unnamed claims stay":                 {func(b *mutant) { b.session = nameAll }, "R19"},
	"it does more than it claims": {func(b *mutant) { b.features = lockkeeper.TableFeatures &^ lockkeeper.FeaturePermits },
		"Unsupported"},
}

// chained puts each claim inside the previous one of the same outer claim, so that siblings cannot
// wait for each other.
func chained(b *mutant) {
	var mu sync.Mutex
	last := make(map[lockkeeper.Ref]lockkeeper.Ref) // by outer claim, the latest held one inside it
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

func correctedPaths(w *lockkeeper.Want) {
	for i, t := range w.Targets {
		if p, err := lockkeeper.ParsePath(string(t.Path)); err == nil {
			w.Targets[i].Path = p
		}
	}
}

func firstLimits(b *mutant) {
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

func oldKeys(b *mutant) {
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

// ignoresLowestOpen drops the low-water mark of every key.
func ignoresLowestOpen(b *mutant) {
	b.key = func(k lockkeeper.Key) lockkeeper.Key {
		k.LowestOpen = 0
		return k
	}
}

// neverAcks drops the acknowledgement of every key.
func neverAcks(b *mutant) {
	b.key = func(k lockkeeper.Key) lockkeeper.Key {
		k.Acked = 0
		return k
	}
}

func lateAttaches(b *mutant) {
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

const faultVariable = "LOCKKEEPER_TEST_FAULT"

// TestPlantedFaults runs the suite on each mutant, in a process of its own: it must fail in the group
// of the fault.
func TestPlantedFaults(t *testing.T) {
	if os.Getenv(faultVariable) != "" {
		t.Skip("this process runs one mutant")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			run := exec.Command(exe, "-test.run=^TestMutant$", "-test.timeout=60s")
			run.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes:\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestMutant/"+f.group+"/") {
				t.Errorf("the suite fails, but not in %s:\n%.3000s", f.group, out)
			}
		})
	}
}

// TestMutant runs the suite on the mutant that the environment names.
func TestMutant(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		t.Skip("run by TestPlantedFaults")
	}
	f := faults[name]
	enginetest.Run(t, bubble(func() lockkeeper.Engine {
		b := &mutant{Engine: memlock.New()}
		f.change(b)
		return b
	}))
}
