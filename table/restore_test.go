package table_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// TestRestoreAnywhere plays random commands on a table, and after each one
// brings a copy up to it by its Changes, as another process does, and makes a
// third one of its Snapshot, as a restart does. All must be equal, and go on equally.
func TestRestoreAnywhere(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(300, 20_000)) {
		if wrong := restoreAnywhere(model.Generate(seed, 60)); wrong != "" {
			t.Fatalf("%s\nreplay: %s", wrong, testmode.Replay(t, seed))
		}
	}
}

func restoreAnywhere(commands []table.Command) string {
	tb, replica := table.New(), table.New()
	tb.Track()
	r := story.New(tb, nil) // it knows the latest epoch of each session
	for i, c := range commands {
		c = r.Complete(c)
		reply, err := tb.Step(&c)
		r.Learn(c, reply, err)
		told := func() string { return fmt.Sprintf("after command %d, %s", i, story.Format(c)) }
		if err := replica.Load(tb.Changes()); err != nil {
			return told() + ": loading the changes: " + err.Error()
		}
		want := essence(tb)
		if got := essence(replica); !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s: the copy differs: %s", told(), firstDifference(got, want))
		}
		restored, restoreErr := table.Restore(tb.Snapshot())
		if restoreErr != nil {
			return told() + ": restoring: " + restoreErr.Error()
		}
		if got := essence(restored); !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s: what is restored differs: %s", told(), firstDifference(got, want))
		}
		if i%7 == 0 { // go on with what was restored
			tb = restored
			tb.Track()
		}
	}
	return ""
}

// TestRestoredTableHasTheSameRecords plays random commands on two tables, of which one is restored now and
// then, as by a node of a cluster that starts again or joins. Their records have the same bytes after each
// command: the nodes of a cluster compare them.
func TestRestoredTableHasTheSameRecords(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(300, 20_000)) {
		random := rand.New(rand.NewPCG(seed, 1))
		one, other := table.New(), table.New()
		r := story.New(one, nil)
		for i, c := range model.GenerateBroad(seed, 80) {
			c = r.Complete(c)
			reply, err := one.Step(&c)
			r.Learn(c, reply, err)
			if _, otherErr := other.Step(&c); (err == nil) != (otherErr == nil) {
				t.Fatalf("after command %d, %s: %v and %v\nreplay: %s", i, story.Format(c), err, otherErr,
					testmode.Replay(t, seed))
			}
			want, got := one.Snapshot(), other.Snapshot()
			if got.Counters != want.Counters || !bytes.Equal(bytesOf(&got), bytesOf(&want)) {
				t.Fatalf("after command %d, %s: %s\nreplay: %s", i, story.Format(c), firstDifference(got, want),
					testmode.Replay(t, seed))
			}
			if random.IntN(10) == 0 {
				if other, err = table.Restore(got); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestLateAcknowledgement: a holder whose hold was forced to end says so after it can no longer rely on the
// hold. A table that was restored in between has the same records afterwards.
func TestLateAcknowledgement(t *testing.T) {
	one := table.New()
	r := story.New(one, nil)
	step := func(tb *table.Table, text string) {
		t.Helper()
		c, err := story.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c = r.Complete(c)
		reply, err := tb.Step(&c)
		if r.Learn(c, reply, err); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"attach ann ttl=10s", "attach bob ttl=10s", "claim ann 1 exclusive db",
		"at 1s revoke bob ann.1 force", "at 8s renew ann", "at 8s renew bob", "at 10500ms pass"} {
		step(one, text)
	}
	other, err := table.Restore(one.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, tb := range []*table.Table{one, other} {
		step(tb, "at 10700ms attach ann ttl=10s epoch=1")
	}
	if got, want := other.Snapshot(), one.Snapshot(); !reflect.DeepEqual(got, want) {
		t.Errorf("the restored table differs: %s", firstDifference(got, want))
	}
}

func bytesOf(snap *table.Snapshot) (b []byte) {
	for i := range record.Records(snap) {
		b = record.AppendRecord(b, snap, i)
	}
	return b
}

func firstDifference(got, want table.Snapshot) string {
	if !reflect.DeepEqual(got.Sessions, want.Sessions) {
		return fmt.Sprintf("sessions\n%+v, want\n%+v", got.Sessions, want.Sessions)
	}
	for i := range min(len(got.Claims), len(want.Claims)) {
		if !reflect.DeepEqual(got.Claims[i], want.Claims[i]) {
			return fmt.Sprintf("claim\n%+v, want\n%+v", got.Claims[i], want.Claims[i])
		}
	}
	for _, more := range slices.Concat(got.Claims[min(len(got.Claims), len(want.Claims)):],
		want.Claims[min(len(got.Claims), len(want.Claims)):]) {
		return fmt.Sprintf("%d claims, want %d: one has\n%+v", len(got.Claims), len(want.Claims), more)
	}
	return fmt.Sprintf("%+v and %+v; freezes %+v, want %+v; paces %+v, want %+v",
		got.Counters, want.Counters, got.Freezes, want.Freezes, got.HoldTimes, want.HoldTimes)
}

// essence is a snapshot without the ended claims that nobody is told of any more.
func essence(t *table.Table) table.Snapshot {
	snap := t.Snapshot()
	snap.Claims = slices.DeleteFunc(snap.Claims, func(r table.ClaimRecord) bool {
		return r.State == lockkeeper.Ended && r.Forget <= t.Now() && r.UnackedUntil <= t.Now()
	})
	if len(snap.Claims) == 0 {
		snap.Claims = nil
	}
	for i := range snap.Claims {
		r := &snap.Claims[i]
		if r.UnackedUntil <= t.Now() {
			r.UnackedUntil = 0
		}
		if len(r.Grants) == 0 {
			r.Grants = nil
		}
		if len(r.Asks) == 0 {
			r.Asks = nil
		}
	}
	return snap
}

// TestRestoreRefuses: what no table can have made is refused with what is wrong.
func TestRestoreRefuses(t *testing.T) {
	hold := func(session string, fence uint64) table.ClaimRecord {
		target := lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeExclusive}
		return table.ClaimRecord{
			Ref: lockkeeper.Ref{Session: session, ID: 1}, State: lockkeeper.Held, Fence: fence, Ticket: fence, Change: fence,
			Want:   lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{target}, Wait: lockkeeper.Forever},
			Grants: []lockkeeper.Grant{{Target: target}}, Bound: lockkeeper.Forever, StatedEnd: lockkeeper.Forever,
		}
	}
	session := func(id string, epoch uint64) table.SessionRecord {
		return table.SessionRecord{
			ID:       id,
			Epoch:    epoch,
			Deadline: lockkeeper.Forever,
			Promise:  lockkeeper.Forever,
			Resumed:  true,
		}
	}
	elsewhere := hold("a", 1)
	elsewhere.Grants[0].Path = "other"
	counters := table.Counters{Fences: 2, Tickets: 2, Epochs: 2, Changes: 2}
	for name, snap := range map[string]table.Snapshot{
		"two holders": {
			Counters: counters,
			Sessions: []table.SessionRecord{session("a", 1), session("b", 2)},
			Claims:   []table.ClaimRecord{hold("a", 1), hold("b", 2)},
		},
		"another path is held": {
			Counters: counters,
			Sessions: []table.SessionRecord{session("a", 1)},
			Claims:   []table.ClaimRecord{elsewhere},
		},
		"no session": {Counters: counters, Claims: []table.ClaimRecord{hold("a", 1)}},
		"fence too high": {
			Counters: counters,
			Sessions: []table.SessionRecord{session("a", 1)},
			Claims:   []table.ClaimRecord{hold("a", 3)},
		},
		"pace of tomorrow":  {Counters: counters, HoldTimes: []table.HoldTimeRecord{{Path: "db", Estimate: 1, At: 1}}},
		"pace below 0":      {Counters: counters, HoldTimes: []table.HoldTimeRecord{{Path: "db", Estimate: -1}}},
		"session too young": {Counters: counters, Sessions: []table.SessionRecord{session("a", 9)}},
	} {
		if _, err := table.Restore(snap); err == nil {
			t.Errorf("%s: it is restored", name)
		}
	}
	snap := table.Snapshot{
		Counters: counters,
		Sessions: []table.SessionRecord{session("a", 1)},
		Claims:   []table.ClaimRecord{hold("a", 1)},
	}
	if _, err := table.Restore(snap); err != nil {
		t.Errorf("a good snapshot is refused: %v", err)
	}
}
