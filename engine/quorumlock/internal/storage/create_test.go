package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

var errUndecided = errors.New("undecided")

// undecided makes a folder whose creation was cut short at its decision.
func undecided(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "node")
	err := CreateAfter(dir, testNode, newScript(0).state, func() error {
		if _, err := os.Lstat(filepath.Join(dir, "node.db")); !os.IsNotExist(err) {
			t.Errorf("the node is there before the decision (%v)", err)
		}
		return errUndecided
	})
	if !errors.Is(err, errUndecided) {
		t.Fatalf("%v, want the error of the decision", err)
	}
	if _, err := Open(t.Context(), dir, Identity{}); !errors.Is(err, ErrNoNode) {
		t.Fatalf("opened before the decision: %v, want ErrNoNode", err)
	}
	return dir
}

func TestCreationIsResumedAfterItsDecision(t *testing.T) {
	dir := undecided(t)
	other := testNode
	other.ID++
	if _, err := Resume(t.Context(), dir, other.String()); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("another node: %v, want ErrInvalid", err)
	}
	for range 2 {
		node, err := Resume(t.Context(), dir, testNode.String())
		if node != testNode || err != nil {
			t.Fatalf("%v, %v, want %v", &node, err, &testNode)
		}
		s := reopen(t, dir, options{})
		state, err := s.State()
		if d := difference(state, newScript(0).state); d != "" || err != nil {
			t.Errorf("%s (%v)", d, err)
		}
		s.mustClose(t)
	}
	if _, err := Resume(t.Context(), dir, other.String()); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("another node than the one that is there: %v, want ErrInvalid", err)
	}
}

func TestCreationBeginsAgainWithoutItsDecision(t *testing.T) {
	dir := undecided(t)
	other := testNode
	other.ID++
	if err := Create(dir, other, replica.State{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(t.Context(), dir, testNode.String()); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("the first one: %v, want ErrInvalid", err)
	}
	s, err := Open(t.Context(), dir, other)
	if err != nil {
		t.Fatal(err)
	}
	s.mustClose(t)
}

func TestDamagedCreationIsNotResumed(t *testing.T) {
	for _, change := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.Truncate(path, 0) },
		func(path string) error { return os.Truncate(path, pageSize) },
		func(path string) error { return os.WriteFile(path, make([]byte, 5*pageSize), 0o600) },
	} {
		dir := undecided(t)
		if err := change(filepath.Join(dir, "node.db.new")); err != nil {
			t.Fatal(err)
		}
		if _, err := Resume(t.Context(), dir, testNode.String()); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		if s, err := Open(t.Context(), dir, Identity{}); err == nil {
			t.Error("a node is there")
			s.mustClose(t)
		}
	}
}

// A folder from which a node's log is gone still shows that a node was there, and only such a folder does.
func TestFolderOfALostLogIsNotUnused(t *testing.T) {
	changes := map[string]func(*testing.T, string){
		"as it is": func(*testing.T, string) {},
		"damaged": func(t *testing.T, dir string) {
			if err := os.Truncate(folder{path: dir}.database(), 0); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, dir string) {
			if err := os.Remove(folder{path: dir}.database()); err != nil {
				t.Fatal(err)
			}
		},
		"retired": func(t *testing.T, dir string) {
			if err := reopen(t, dir, options{}).Retire([]byte("another node goes on")); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(folder{path: dir}.log()); err != nil { // the file left is that of the retired node
				t.Fatal(err)
			}
		},
	}
	for name, change := range changes {
		dir := newNode(t)
		if err := reopen(t, dir, options{}).Close(); err != nil {
			t.Fatal(err)
		}
		change(t, dir)
		if there := name == "as it is" || name == "damaged"; !HadLog(dir) || HasLog(dir) != there {
			t.Errorf("%s: it had a log: %t, it has one: %t", name, HadLog(dir), HasLog(dir))
		}
	}
	if dir := t.TempDir(); HadLog(dir) || HasLog(dir) {
		t.Error("an empty folder counts as that of a node")
	}
}
