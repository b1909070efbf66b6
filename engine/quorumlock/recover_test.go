package quorumlock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
	processes "github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

func TestMain(m *testing.M) {
	processes.Play(map[string]func(args []string) error{"recover": playRecover, "node": playNode})
	os.Exit(m.Run())
}

func recovered(from, to string, decide func(retire func() error) error) (Recovery, error) {
	c := Config{Name: "new", Advertise: "127.0.0.1:7430", Rank: DefaultRank}
	return recoverTo(context.Background(), from, to, &c, decide)
}

// playRecover recovers a cluster when it gets a line. It may die before or after the folder is retired.
func playRecover(args []string) error {
	fmt.Println("ready")
	fmt.Scanln()
	_, err := recovered(args[0], args[1], func(retire func() error) error {
		if args[2] == "before" {
			kill()
		}
		err := retire()
		if args[2] == "after" {
			kill()
		}
		return err
	})
	fmt.Println("end", err)
	return err
}

func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// copied returns a copy of a folder, which opens as the folder does.
func copied(t *testing.T, folder string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(to, "mark"), 0); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return to
}

// opens reports whether a node of the folder could run.
func opens(t *testing.T, folder string) bool {
	t.Helper()
	s, err := storage.Open(t.Context(), copied(t, folder), storage.Identity{})
	if err == nil {
		err = s.Close()
	}
	return err == nil
}

// lostCluster returns the folder of a node with one hold, of which a majority is lost.
func lostCluster(t *testing.T) (folder string) {
	ms := newMachines(t, 1)
	m := ms.all[0]
	m.await("it leads", func(s replica.Status) bool { return s.Ready })
	m.lock("db")
	m.stop()
	return m.folder
}

// A recovery is killed in each of its phases. At no moment both folders can be opened, and it can be
// repeated.
func TestRecoverMayBeKilledAnywhere(t *testing.T) {
	lost := lostCluster(t)
	phases := make(map[string]int)
	run := func(dies string, after time.Duration) {
		from, to := copied(t, lost), filepath.Join(t.TempDir(), "node")
		if s, err := storage.Open(t.Context(), from, storage.Identity{}); err != nil || s.Close() != nil {
			t.Fatal(err) // from now on the copy is the original
		}
		p := processes.Start(t, "recover", from, to, dies)
		p.Read("ready")
		if after > 0 {
			killer := time.AfterFunc(after, func() { p.Signal(os.Kill) })
			defer killer.Stop()
		}
		p.Send("go")
		word, rest := p.ReadLine()
		p.Kill()
		phase := fmt.Sprintf("old opens %v, new opens %v", opens(t, from), opens(t, to))
		phases[phase]++
		when := fmt.Sprintf("died %s after %s: %s", dies, after, phase)
		if phase == "old opens true, new opens true" || word == "end" && rest != "<nil>" {
			t.Fatalf("%s: %s %s", when, word, rest)
		}
		for range 2 {
			r, err := recovered(from, to, func(retire func() error) error { return retire() })
			if err != nil || r.Held != 1 {
				t.Fatalf("%s: repeated: %+v, %v", when, r, err)
			}
			if opens(t, from) || !opens(t, to) {
				t.Fatalf("%s: repeated: the old folder opens %v, the new one %v", when, opens(t, from), opens(t, to))
			}
		}
		if _, err := recovered(from, filepath.Join(t.TempDir(), "other"), nil); err == nil {
			t.Errorf("%s: another node gets the locks", when)
		}
	}
	run("before", 0)
	run("after", 0)
	run("at no time", 0)
	random := testmode.Rand(t)
	for range testmode.Pick(4, 300) {
		run("by itself", 1+time.Duration(random.Int64N(int64(60*time.Millisecond))))
	}
	t.Logf("%v", phases)
	if len(phases) != 3 {
		t.Error("that proves nothing")
	}
}

// The lost nodes may still run, and the old folder may be put back by hand: neither of them gets into
// the new cluster.
func TestRecoveredClusterGoesOnWithoutTheOldOne(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	survivor := ms.all[1]
	fence := survivor.lock("db").Fence()
	for _, m := range ms.all {
		m.stop()
	}
	report, err := Examine(ms.ctx(), survivor.folder)
	if err != nil {
		t.Fatal(err)
	}
	if report.Held != 1 || len(report.Others) != 2 || !strings.Contains(report.String(), "node3 at") {
		t.Errorf("the report: %s", report)
	}
	fresh := ms.add("node2")
	if _, err := Recover(ms.ctx(), survivor.folder, fresh.folder, fresh.config); err != nil {
		t.Fatal(err)
	}
	if err := survivor.open(); err == nil || !strings.Contains(err.Error(), "is retired: another node goes on") {
		t.Fatalf("the folder that was recovered opens: %v", err)
	}
	retired := filepath.Join(survivor.folder, "node.db")
	if err := os.Rename(retired+".retired", retired); err != nil {
		t.Fatal(err)
	}
	fresh.start()
	fresh.await("the new cluster leads itself", func(s replica.Status) bool { return s.Ready && len(s.Voters) == 1 })
	for _, m := range ms.all[:2] { // also the survivor, which somebody has put back
		m.start()
	}
	ms.all[0].await("the old nodes have a majority", func(s replica.Status) bool { return s.Contact })
	if s := fresh.engine.Cluster(); len(s.Nodes) != 1 || s.Cluster == report.Cluster {
		t.Errorf("the new cluster is %+v", s)
	}
	var held []lockkeeper.Status
	for st, err := range fresh.engine.List(ms.ctx(), lockkeeper.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, st)
	}
	if len(held) != 2 || held[0].Fence != fence || held[1].State != lockkeeper.Freezing {
		t.Errorf("the new cluster has %+v, want the hold and a freeze", held)
	}
}
