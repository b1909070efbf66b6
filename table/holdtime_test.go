package table

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestHoldTimesAreBounded: of more paths than there is room for, those are remembered
// whose holds ended last, of one instant those that come last by bytes; a copy that
// is told of changes only now and then remembers the same.
func TestHoldTimesAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tb, copied := New(), New()
	tb.Track()
	reply, err := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(map[lockkeeper.Path]time.Duration)
	now := time.Duration(0)
	for id := range uint64(3 * MaxHoldTimes) {
		path := lockkeeper.Path(fmt.Sprintf("p%d", random.IntN(2*MaxHoldTimes)))
		want := lockkeeper.Want{ID: id + 1, Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}}
		if _, err := tb.Step(&Command{At: now, Op: Claim, Key: reply.Lease.Key, Want: want}); err != nil {
			t.Fatal(err)
		}
		now += time.Duration(random.IntN(2)) * time.Second
		ending := lockkeeper.Ending{Kind: lockkeeper.Release, ID: id + 1}
		if _, err := tb.Step(&Command{At: now, Op: End, Key: reply.Lease.Key, Ending: ending}); err != nil {
			t.Fatal(err)
		}
		ended[path] = now
		if id%100 > 0 {
			continue
		}
		if err := copied.Load(tb.Changes()); err != nil {
			t.Fatal(err)
		}
		if got, want := copied.Snapshot().HoldTimes, tb.Snapshot().HoldTimes; !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d holds the copy has %v, want %v", id, got, want)
		}
		if err := copied.Check(); err != nil {
			t.Fatal(err)
		}
	}
	paths := make([]lockkeeper.Path, 0, len(ended))
	for path := range ended { // order does not matter: sorted below
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b lockkeeper.Path) int {
		if ended[a] != ended[b] {
			return int(ended[b] - ended[a])
		}
		if a > b {
			return -1
		}
		return 1
	})
	got := tb.Snapshot().HoldTimes
	if len(got) != MaxHoldTimes {
		t.Fatalf("%d paces of %d paths", len(got), len(paths))
	}
	for _, p := range got {
		if !slices.Contains(paths[:MaxHoldTimes], p.Path) || p.At != ended[p.Path] {
			t.Errorf("%s is remembered, whose latest hold ended at %s", p.Path, ended[p.Path])
		}
	}
	again, err := Restore(tb.Snapshot())
	if err != nil || !reflect.DeepEqual(again.Snapshot(), tb.Snapshot()) {
		t.Errorf("restored it is another: %v", err)
	}
}

// TestNoEstimateOfACrowd: an estimate looks at 1,024 claims in the way and no more.
func TestNoEstimateOfACrowd(t *testing.T) {
	for _, tc := range []struct {
		holders, waiters int
		known            bool
	}{{1024, 0, true}, {1025, 0, false}, {1, 1024, true}, {1, 1025, false}} {
		tb := New()
		reply, _ := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}})
		id := uint64(0)
		ask := func(m lockkeeper.Mode) {
			id++
			want := lockkeeper.Want{
				ID:       id,
				Wait:     lockkeeper.Forever,
				Expected: time.Minute,
				Targets:  []lockkeeper.Target{{Path: "db", Mode: m}},
			}
			if _, err := tb.Step(&Command{Op: Claim, Key: reply.Lease.Key, Want: want}); err != nil {
				t.Fatal(err)
			}
		}
		for range tc.holders {
			ask(lockkeeper.ModeShared)
		}
		for range tc.waiters + 1 {
			ask(lockkeeper.ModeExclusive)
		}
		s, _ := tb.Explain(lockkeeper.Ref{Session: "a", ID: id})
		if known := s.ETA > 0; known != tc.known || s.Position != tc.waiters+1 {
			t.Errorf("with %d holders and %d ahead: place %d, about %s to go", tc.holders, tc.waiters, s.Position, s.ETA)
		}
	}
}
