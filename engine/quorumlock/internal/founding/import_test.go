package founding_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/founding"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func(args []string) error{"import": playImport})
	os.Exit(m.Run())
}

// playImport imports the locks of a directory when it gets a line. It may die before or after the
// directory is retired.
func playImport(args []string) error {
	fmt.Println("ready")
	fmt.Scanln()
	err := moveLocks(context.Background(), args[0], args[1], nodeWith(1), args[2])
	fmt.Println("end", err)
	return err
}

// A mortal is a Source at whose retirement the process dies.
type mortal struct {
	founding.Source
	dies string // before or after it
}

func (m mortal) Retire(to string) error {
	if m.dies == "before" {
		kill()
	}
	err := m.Source.Retire(to)
	if m.dies == "after" {
		kill()
	}
	return err
}

func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

func nodeWith(id uint64) storage.Identity {
	return storage.Identity{Cluster: "c0ffee", ID: id, Name: "n1", Random: 5}
}

var settings = []replica.Setting{{Key: "voters", Value: []byte("3")}}

// moveLocks makes the log of a cluster in the folder to, with the locks of the directory from.
func moveLocks(ctx context.Context, from, to string, node storage.Identity, dies string) error {
	m, err := disklock.BeginMove(ctx, from)
	if err != nil {
		return err
	}
	defer m.Close()
	source := mortal{m, dies}
	if m.MovedTo() != "" {
		return founding.Resume(ctx, to, source)
	}
	return founding.Create(to, node, settings, source)
}

// A source is a Source in memory.
type source struct {
	table *table.Table
	to    string
}

func (s *source) MovedTo() string        { return s.to }
func (s *source) Table() *table.Table    { return s.table }
func (s *source) Retire(to string) error { s.to = to; return nil }

// tableOf returns the table with which the node of a folder begins, and the node.
func tableOf(dir string) (table.Snapshot, storage.Identity, error) {
	s, err := storage.Open(context.Background(), dir, storage.Identity{})
	if err != nil {
		return table.Snapshot{}, storage.Identity{}, err
	}
	defer s.Close()
	state, err := s.State()
	if err != nil {
		return table.Snapshot{}, s.Identity(), err
	}
	r, err := newReplica(s.Identity().ID, state)
	if err != nil {
		return table.Snapshot{}, s.Identity(), err
	}
	if got := string(r.Setting("voters").Value); got != "3" {
		return table.Snapshot{}, s.Identity(), fmt.Errorf("the setting says %q", got)
	}
	return r.Table().Snapshot(), s.Identity(), r.Table().Check()
}

func newReplica(id uint64, state replica.State) (*replica.Replica, error) {
	return replica.New(replica.Config{
		ID: id, Incarnation: 1, Guarantees: lockkeeper.Guarantees{Features: lockkeeper.TableFeatures},
		HeartbeatTicks: 1, ElectionTicks: 10, CallTimeout: time.Second, RecordEvery: time.Second,
		SnapshotEvery: 1000, KeepEntries: 1000, MaxQueued: 1000, MaxEntry: 1 << 16, MaxUnwritten: 1 << 20,
	}, state, time.Hour) // the boot clock is no part of the time
}

// All of a table is the same in the cluster: sessions with their TTLs, holds, queue positions, fences,
// limits, freezes, the time.
func TestClusterBeginsWithTheTableOfItsSource(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(10, 500)) {
		tb := table.New()
		r := story.New(tb, nil)
		for _, c := range model.Generate(seed, 100) {
			c = r.Complete(c)
			reply, err := tb.Step(&c)
			r.Learn(c, reply, err)
		}
		if _, err := tb.Step(&table.Command{At: tb.Now(), Op: table.Restart}); err != nil {
			t.Fatal(err)
		}
		want := tb.Snapshot()
		dir := t.TempDir()
		if err := founding.Create(dir, nodeWith(1), settings, &source{table: tb}); err != nil {
			t.Fatal(err)
		}
		got, _, err := tableOf(dir)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: the cluster has\n%+v\nwant\n%+v\nreplay: %s", err, got, want, testmode.Replay(t, seed))
		}
	}
}

// durable makes a directory as a durable server has it, with holders, waiters, permits, and a freeze.
func durable(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	e, err := disklock.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]uint64)
	keys := make(map[string]lockkeeper.Key)
	claim := func(who string, want lockkeeper.State, w lockkeeper.Want) {
		t.Helper()
		key, attached := keys[who]
		if !attached {
			lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: who, TTL: 20 * time.Second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			key = lease.Key
			keys[who] = key
		}
		ids[who]++
		w.ID, w.Wait = ids[who], lockkeeper.Forever
		if st, err := e.Claim(t.Context(), key, w); err != nil || st.State != want {
			t.Fatalf("%s claims %v: %v, %v, want %v", who, w.Targets, st.State, err, want)
		}
	}
	one := func(path string, mode lockkeeper.Mode, units, limit int) lockkeeper.Want {
		target := lockkeeper.Target{Path: lockkeeper.Path(path), Mode: mode, Units: units, Limit: limit}
		return lockkeeper.Want{Targets: []lockkeeper.Target{target}}
	}
	claim("ann", lockkeeper.Held, one("db/orders", lockkeeper.ModeExclusive, 0, 0))
	claim("bob", lockkeeper.Waiting, one("db", lockkeeper.ModeExclusive, 0, 0))
	claim("cid", lockkeeper.Waiting, one("db/orders", lockkeeper.ModeShared, 0, 0))
	claim("ann", lockkeeper.Held, one("router/snmp", lockkeeper.ModePermits, 2, 3))
	claim("bob", lockkeeper.Waiting, one("router/snmp", lockkeeper.ModePermits, 2, 3))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// afterRestart returns the table that the directory has after a restart.
func afterRestart(t *testing.T, dir string) table.Snapshot {
	t.Helper()
	m, err := disklock.BeginMove(t.Context(), copied(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return m.Table().Snapshot()
}

// usable reports whether a server can run on the directory. It opens a copy.
func usable(t *testing.T, dir string) bool {
	t.Helper()
	e, err := disklock.Open(t.Context(), copied(t, dir))
	if err != nil && !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("the directory: %v, want ErrInvalid or none", err)
	}
	if err == nil {
		e.Close()
	}
	return err == nil
}

// mustHave moves the locks once more, which must succeed: then only the cluster has them, all of them.
func mustHave(t *testing.T, when, from, to string, want table.Snapshot) {
	t.Helper()
	var first storage.Identity
	for id := range uint64(2) {
		if err := moveLocks(t.Context(), from, to, nodeWith(100+id), ""); err != nil {
			t.Fatalf("%s: repeated: %v", when, err)
		}
		got, node, err := tableOf(to)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v: the cluster has\n%+v\nwant\n%+v", when, err, got, want)
		}
		if id > 0 && node != first {
			t.Errorf("%s: the second time it is %v, the first time it was %v", when, &node, &first)
		}
		first = node
	}
	if usable(t, from) {
		t.Errorf("%s: both have the locks", when)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := moveLocks(t.Context(), from, other, nodeWith(200), ""); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("%s: a second cluster gets the locks: %v, want ErrInvalid", when, err)
	}
}

func TestImportMovesTheLocks(t *testing.T) {
	from, to := durable(t), filepath.Join(t.TempDir(), "node")
	want := afterRestart(t, from)
	if len(want.Claims) != 5 || len(want.Sessions) != 3 {
		t.Fatalf("%d claims and %d sessions, want 5 and 3", len(want.Claims), len(want.Sessions))
	}
	mustHave(t, "at first", from, to, want)
}

// The import is killed in each of its phases. At no moment both have the locks, and it can be
// repeated.
func TestImportMayBeKilledAnywhere(t *testing.T) {
	server := durable(t)
	want := afterRestart(t, server)
	seen := make(map[string]int)
	run := func(dies string, after time.Duration) {
		from, to := copied(t, server), filepath.Join(t.TempDir(), "node")
		p := roles.Start(t, "import", from, to, dies)
		p.Read("ready")
		if after > 0 {
			killer := time.AfterFunc(after, func() { p.Signal(os.Kill) })
			defer killer.Stop()
		}
		p.Send("go")
		word, rest := p.ReadLine()
		p.Kill()
		old := usable(t, from)
		_, _, err := tableOf(to)
		phase := fmt.Sprintf("server %v, cluster %v", old, err == nil)
		seen[phase]++
		when := fmt.Sprintf("died %s after %s: %s", dies, after, phase)
		if old && err == nil {
			t.Fatalf("%s: both have the locks", when)
		}
		mustHave(t, when, from, to, want)
		if word == "end" && rest != "<nil>" {
			t.Errorf("it ended with %s", rest)
		}
	}
	run("before", 0)
	run("after", 0)
	run("at no time", 0)
	random := testmode.Rand(t)
	for range testmode.Pick(6, 500) {
		run("by itself", 1+time.Duration(random.Int64N(int64(40*time.Millisecond))))
	}
	t.Logf("%v", seen)
	if len(seen) != 3 {
		t.Error("that proves nothing")
	}
}
