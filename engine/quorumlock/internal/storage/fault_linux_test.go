package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// smallDisk mounts a disk of 2 MB in memory.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves less than a page of room on the disk.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// On a full disk nothing of a write is durable, in the process and after a crash, and the same write
// succeeds when there is room.
func TestFullDiskLosesNothingAndWritesAreRepeated(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "node")
	if err := Create(dir, testNode, newScript(0).state); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, dir, options{})
	want := newScript(0).state
	next := uint64(2)
	group := func() (writes []replica.Write) {
		for i := range uint64(3) {
			writes = append(writes, replica.Write{
				HardState: &pb.HardState{Term: new(uint64(1)), Vote: new(uint64(17)), Commit: new(next)},
				Entries: []*pb.Entry{{
					Index: new(next + i), Term: new(uint64(1)), Type: pb.EntryNormal.Enum(), Data: make([]byte, 9000),
				}},
			})
		}
		return writes
	}
	check := func(when string) {
		t.Helper()
		state, err := s.State()
		if d := difference(state, want); d != "" || err != nil {
			t.Fatalf("%s: %s (%v)", when, d, err)
		}
	}
	for round := range 3 {
		free := fill(t, disk)
		var err error
		for range 1000 {
			if err = s.Write(group()); err != nil {
				break
			}
			for _, w := range group() {
				apply(&want, &w)
			}
			next += 3
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("round %d: a write that fills the disk: %v, want ErrFull that names the folder", round, err)
		}
		if err := s.Write(group()); !errors.Is(err, ErrFull) {
			t.Errorf("a second one: %v, want ErrFull", err)
		}
		check("on a full disk")
		c, err := readFiles(t, dir).recovered(t, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(c.state, want); d != "" {
			t.Errorf("after a crash on a full disk: %s", d)
		}
		free()
		mustWrite(t, s, group()...)
		for _, w := range group() {
			apply(&want, &w)
		}
		next += 3
		check("with room again")
		snapshot := replica.Write{Snapshot: &pb.Snapshot{Data: []byte("s"), Metadata: &pb.SnapshotMetadata{
			Index: new(next - 1), Term: new(uint64(1)), ConfState: &pb.ConfState{}}}}
		mustWrite(t, s, snapshot)
		apply(&want, &snapshot)
	}
	fill(t, disk)
	if err := s.Close(); err != nil {
		t.Errorf("Close on a full disk: %v", err)
	}
	c, err := readFiles(t, dir).recovered(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(c.state, want); d != "" {
		t.Errorf("closed on a full disk: %s", d)
	}
}

// A node that can't be created for lack of room leaves nothing that is taken for one.
func TestCreateOnFullDiskCanBeRepeated(t *testing.T) {
	disk := smallDisk(t)
	free := fill(t, disk)
	dir := filepath.Join(disk, "node")
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := Create(dir, testNode, newScript(0).state); err == nil {
			t.Error("created without room")
		}
		if _, err := Open(t.Context(), dir, testNode); err == nil {
			t.Error("a node is there")
		}
	}
	free()
	if err := Create(dir, testNode, newScript(0).state); err != nil {
		t.Fatal(err)
	}
	reopen(t, dir, options{}).mustClose(t)
}

// After the system could not write or sync, the node writes no more, though the system could, and
// the next process finds the last write as a whole or nothing of it.
func TestNothingIsWrittenAfterAnError(t *testing.T) {
	for _, fault := range []string{
		"fsync,fdatasync:error=EIO", "fsync,fdatasync:error=ENOSPC", "pwrite64:error=EIO",
		"fsync,fdatasync:error=EIO:when=1",
	} {
		t.Run(fault, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node")
			const seed = 5
			p := roles.Start(t, "trace", dir, fmt.Sprint(seed), "10", "ask")
			p.Read("durable 0")
			p.Read("open")
			write := func(n int, want string) string {
				t.Helper()
				fmt.Fprintln(p.In)
				p.Read(fmt.Sprint("begin ", n))
				return p.Read(want)
			}
			write(1, "durable")
			stop := p.Inject(fault)
			if why := write(2, "error true"); !strings.Contains(why, "look for a failing disk") {
				t.Errorf("refused with %q, want what to do", why)
			}
			write(3, "error true")
			stop()
			write(4, "error true")
			p.Kill()
			found(t, seed, dir, 1, 2)
		})
	}
}
