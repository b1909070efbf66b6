package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func(args []string) error{
		"open":  playOpen,
		"write": playWrite,
		"trace": playTrace,
	})
	os.Exit(m.Run())
}

// playOpen has the folder until its input ends.
func playOpen(args []string) error {
	s, err := Open(context.Background(), args[0], Identity{})
	if err != nil {
		return err
	}
	fmt.Println("open")
	io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// newNode makes the folder of a node, which begins as a script does.
func newNode(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := Create(dir, testNode, newScript(0).state); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reopen opens the folder.
func reopen(t testing.TB, dir string, o options) *Store {
	t.Helper()
	s, err := open(context.Background(), dir, testNode, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Store) mustClose(t testing.TB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t testing.TB, s *Store, writes ...replica.Write) {
	t.Helper()
	if err := s.Write(writes); err != nil {
		t.Fatal(err)
	}
}

// files are the contents of a folder.
type files map[string][]byte

func readFiles(t testing.TB, dir string) files {
	t.Helper()
	all := make(files)
	for _, name := range []string{"node.db", "node.db-wal", "mark"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err == nil {
			all[name] = b
		}
	}
	return all
}

// with returns the files with other content of one; nil: without it.
func (f files) with(name string, content []byte) files {
	all := make(files)
	for n, b := range f {
		all[n] = b
	}
	if all[name] = content; content == nil {
		delete(all, name)
	}
	return all
}

// put makes the files the content of the folder.
func (f files) put(t testing.TB, dir string) folder {
	t.Helper()
	for _, name := range []string{"node.db", "node.db-wal", "node.db-shm", "mark"} {
		path := filepath.Join(dir, name)
		err := os.Remove(path)
		if os.IsNotExist(err) {
			err = nil
		}
		if b, there := f[name]; err == nil && there {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder{path: dir}
}

// recovered returns what Open would find in the files, without changing them for good.
func (f files) recovered(t testing.TB, dir string) (*content, error) {
	t.Helper()
	at := f.put(t, dir)
	c, err := at.recover(context.Background(), options{careless: true, moved: true})
	if err != nil {
		err = refusal(at.database(), err)
	}
	return c, err
}

// Everything that a replica writes is there, in the process and after it is opened again.
func TestStateIsTheSumOfAllWrites(t *testing.T) {
	seed := testmode.Seed(t)
	dir := newNode(t)
	s := reopen(t, dir, options{careless: true, checkpointPages: 50})
	sc := newScript(seed)
	for round := range testmode.Pick(60, 2000) {
		var writes []replica.Write
		for range sc.random.IntN(8) {
			writes = append(writes, sc.next())
		}
		mustWrite(t, s, writes...)
		if round%5 == 0 {
			s.mustClose(t)
			s = reopen(t, dir, options{careless: true, checkpointPages: 50})
		}
		state, err := s.State()
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(state, sc.state); d != "" {
			t.Fatalf("after write %d: %s", sc.number, d)
		}
	}
	s.mustClose(t)
}

func TestNodesBeginAsTheyWereCreated(t *testing.T) {
	for name, state := range map[string]replica.State{
		"a founder":           newScript(0).state,
		"a node that joins":   {},
		"a node that goes on": newScript(1).skip(40),
		"a hard state by itself": {HardState: &pb.HardState{
			Term:   new(uint64(3)),
			Vote:   new(uint64(1 << 63)),
			Commit: new(uint64(0)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			node := Identity{Cluster: "c", ID: 1<<64 - 1, Name: "n", Random: 1<<32 - 1}
			if err := Create(dir, node, state); err != nil {
				t.Fatal(err)
			}
			for opened := uint64(1); opened <= 2; opened++ {
				s, err := Open(t.Context(), dir, Identity{ID: node.ID})
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.State()
				if d := difference(got, state); d != "" || err != nil {
					t.Errorf("%s (%v)", d, err)
				}
				if s.Identity() != node || s.Opened() != opened {
					t.Errorf("%v, opened %d times, want %v and %d", s.Identity(), s.Opened(), node, opened)
				}
				s.mustClose(t)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	dir := newNode(t)
	if err := Create(dir, testNode, replica.State{}); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a folder with a node: %v, want ErrInvalid", err)
	}
	for _, node := range []Identity{{ID: 1, Name: "n"}, {Cluster: "c", Name: "n"}, {Cluster: "c", ID: 1}} {
		empty := filepath.Join(t.TempDir(), "empty")
		if err := Create(empty, node, replica.State{}); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", node, err)
		}
	}
	s := reopen(t, dir, options{})
	defer s.Close()
	if err := Create(dir, testNode, replica.State{}); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("an open folder: %v, want ErrUnavailable", err)
	}
}

func TestOpenRefusesOtherFolders(t *testing.T) {
	for name, c := range map[string]struct {
		dir   string
		want  Identity
		is    error
		words string
	}{
		"no folder":       {filepath.Join(t.TempDir(), "none"), Identity{}, ErrNoNode, "create a cluster or join one"},
		"no node":         {t.TempDir(), Identity{}, ErrNoNode, "create a cluster or join one"},
		"another id":      {newNode(t), Identity{Cluster: "c0ffee", ID: 18}, lockkeeper.ErrInvalid, "id 0000000000000011"},
		"another cluster": {newNode(t), Identity{Cluster: "decaf", ID: 17}, lockkeeper.ErrInvalid, `cluster "c0ffee"`},
		"another name":    {newNode(t), Identity{Name: "bob"}, lockkeeper.ErrInvalid, `node "ann"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.dir, c.want)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), c.dir) {
				t.Errorf("%v, want %v with %q", err, c.is, c.words)
			}
		})
	}
}

// A second process learns which one has the folder. When that is killed, the folder is free.
func TestSecondProcessIsRefused(t *testing.T) {
	dir := newNode(t)
	p := roles.Start(t, "open", dir)
	p.Read("open")
	_, err := Open(t.Context(), dir, testNode)
	want := fmt.Sprint("process ", p.Cmd.Process.Pid)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrUnavailable that names %s", err, want)
	}
	p.Kill()
	s := reopen(t, dir, options{})
	if _, err := Open(t.Context(), dir, testNode); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a second one in this process: %v, want ErrUnavailable", err)
	}
	s.mustClose(t)
	if err := s.Write([]replica.Write{newScript(1).next()}); !errors.Is(err, ErrClosed) {
		t.Errorf("a write after Close: %v, want ErrClosed", err)
	}
}

// Writes that no replica makes would hide a loss, so the node stops, and the disk has nothing of them.
func TestImpossibleWritesAreRefused(t *testing.T) {
	entry := func(index, term uint64) []*pb.Entry {
		return []*pb.Entry{{Index: new(index), Term: new(term), Type: pb.EntryNormal.Enum()}}
	}
	snapshot := func(index, term uint64) *pb.Snapshot {
		return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(index), Term: new(term), ConfState: &pb.ConfState{}}}
	}
	hard := func(term, vote uint64) *pb.HardState {
		return &pb.HardState{Term: new(term), Vote: new(vote), Commit: new(uint64(4))}
	}
	before := []replica.Write{
		{Number: 1, HardState: hard(2, 17), Entries: append(append(entry(2, 2), entry(3, 2)...), entry(4, 2)...)},
		{Number: 2, Snapshot: snapshot(3, 2)},
	}
	for name, w := range map[string]replica.Write{
		"a gap":                            {Entries: entry(7, 2)},
		"a gap within":                     {Entries: append(entry(6, 2), entry(8, 2)...)},
		"entries in the snapshot":          {Entries: entry(3, 3)},
		"an older snapshot":                {Snapshot: snapshot(2, 2), Install: true},
		"a snapshot of what is not there":  {Snapshot: snapshot(6, 2)},
		"a snapshot of another term":       {Snapshot: snapshot(4, 1)},
		"a term that falls":                {HardState: hard(1, 17)},
		"a second vote in a term":          {HardState: hard(2, 18)},
		"a vote that is taken back":        {HardState: hard(2, 0)},
		"an entry in front of the others ": {Entries: entry(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newNode(t)
			s := reopen(t, dir, options{careless: true})
			mustWrite(t, s, before...)
			want, err := s.State()
			if err != nil {
				t.Fatal(err)
			}
			good := replica.Write{Number: 3, Entries: entry(5, 2)}
			w.Number = 4
			if err := s.Write([]replica.Write{good, w}); !errors.Is(err, ErrFailed) ||
				!strings.Contains(err.Error(), "write 4") {
				t.Errorf("%v, want ErrFailed that names write 4", err)
			}
			if err := s.Write([]replica.Write{good}); !errors.Is(err, ErrFailed) {
				t.Errorf("a write after that: %v, want ErrFailed", err)
			}
			if err := s.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("Close: %v, want ErrFailed", err)
			}
			c, err := readFiles(t, dir).recovered(t, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if d := difference(c.state, want); d != "" {
				t.Errorf("the disk has %s", d)
			}
		})
	}
}

// The files stay small, however long a node runs.
func TestSnapshotsBoundTheSize(t *testing.T) {
	dir := newNode(t)
	s := reopen(t, dir, options{careless: true})
	defer s.Close()
	sc := newScript(1)
	var most int64
	next := uint64(2)
	const between, entryBytes = 200, 1000
	for range testmode.Pick(20, 200) {
		for range between {
			e := &pb.Entry{Index: new(next), Term: new(uint64(1)), Type: pb.EntryNormal.Enum(), Data: sc.bytes(entryBytes)}
			mustWrite(t, s, replica.Write{Entries: []*pb.Entry{e}})
			next++
		}
		mustWrite(t, s, replica.Write{Snapshot: &pb.Snapshot{Data: sc.bytes(200_000), Metadata: &pb.SnapshotMetadata{
			Index: new(next - 1), Term: new(uint64(1)), ConfState: &pb.ConfState{}}}})
		size := int64(0)
		for _, path := range []string{s.folder.database(), s.folder.log()} {
			if info, err := os.Stat(path); err == nil {
				size += info.Size()
			}
		}
		most = max(most, size)
	}
	const log = (pagesBetweenCheckpoints + 100) * pageSize
	if bound := int64(2*200_000 + 2*between*entryBytes + log + log/2); most > bound {
		t.Errorf("the files grew to %d bytes, want at most %d", most, bound)
	}
	t.Logf("at most %d bytes", most)
}

func TestCopiesAreRefusedUntilTheMarkIsEmptied(t *testing.T) {
	dir := newNode(t)
	reopen(t, dir, options{}).mustClose(t)
	if dbfolder.FileID(filepath.Join(dir, "node.db")) == 0 {
		t.Skip("this file system gives files no numbers that last")
	}
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), other, testNode)
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "is a copy") {
		t.Errorf("%v, want ErrLost that says it is a copy", err)
	}
	if err := os.Truncate(filepath.Join(other, "mark"), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		reopen(t, other, options{}).mustClose(t)
	}
}

// A start that fails, or is killed, after the mark was emptied leaves the mark empty: else the next
// start would refuse the copy.
func TestEmptiedMarkStaysUntilTheFolderIsOpen(t *testing.T) {
	dir := newNode(t)
	reopen(t, dir, options{}).mustClose(t)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(copied, "mark")
	if err := os.Truncate(mark, 0); err != nil {
		t.Fatal(err)
	}
	reader, err := dbfolder.OpenDB(filepath.Join(copied, "node.db"), dbfolder.Use{})
	if err != nil {
		t.Fatal(err)
	}
	var commits int64
	if err := errors.Join(reader.Exec("BEGIN"), reader.Query("SELECT commits FROM progress", &commits)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), copied, testNode); err == nil {
		t.Fatalf("it opens beside a reader: %v", s.Close())
	}
	if m, err := dbfolder.ReadMark(mark); err != nil || !m.Waived() {
		t.Errorf("after a start that failed the mark is %v, %v; want it empty", m, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, copied, options{})
	if m, err := dbfolder.ReadMark(mark); err != nil || m == nil || m.Seq != s.progress.commits {
		t.Errorf("after a start the mark is %v, %v; want transaction %d", m, err, s.progress.commits)
	}
	s.mustClose(t)
	reopen(t, copied, options{}).mustClose(t)
}
