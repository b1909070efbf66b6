package sqlitelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func look(t *testing.T, path string) *Engine {
	t.Helper()
	e, err := Look(bounded(t), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// contents are the files of an engine, but for SQLite's index of the log, which readers share.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.Walk(filepath.Dir(path), func(at string, info os.FileInfo, err error) error {
		if err != nil || strings.HasSuffix(at, "-shm") {
			return err
		}
		all[at] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			all[at] += string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A read-only engine shows the present state, and changes nothing: neither the remains of a killed
// process in the file, in its log and among the session files, nor claims that have fallen due.
func TestLookChangesNothing(t *testing.T) {
	path := file(t)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	other := roles.Start(t, "hold", path, "site")
	other.Read("held")
	holder.Kill()
	other.Kill()
	if err := os.WriteFile(filepath.Join(path+"-sessions", strings.Repeat("a", 26)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, path)
	e := look(t, path)
	for range 2 {
		if all, err := e.list(bounded(t), lockkeeper.Query{}); err != nil || len(all) != 0 {
			t.Errorf("it lists %v (%v), want nothing: the holders are dead", all, err)
		}
	}
	examined(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range e.List(ctx, lockkeeper.Query{Follow: true}) {
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	after := contents(t, path)
	for at, was := range before {
		if after[at] != was {
			t.Errorf("%s was changed", at)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files, want %d", len(after), len(before))
	}
	if claims := snapshot(t, openReal(t, path)).Claims; len(claims) != 0 {
		t.Errorf("after that there are %d claims, want that who may write ends them", len(claims))
	}
}

// A read-only engine on a file that nobody uses leaves no log beside it.
func TestLookLeavesNoLog(t *testing.T) {
	path := file(t)
	c, _ := testClient(t, path)
	if err := c.Do(bounded(t), "db", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.Close()
	before := contents(t, path)
	look(t, path).Close()
	if after := contents(t, path); len(after) != len(before) {
		t.Errorf("it left %d files of %d", len(after), len(before))
	}
	if _, err := os.Stat(path + "-shm"); err == nil {
		t.Error("it left the log's index")
	}
}

// A read-only engine creates no file, and takes no lock.
func TestLookTakesNothing(t *testing.T) {
	path := file(t)
	_, err := Look(bounded(t), path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v, want that it does not exist", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Look(bounded(t), path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("got %v, want that it is empty", err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("there are %v (%v), want the empty file alone", names, err)
	}
	openReal(t, path).Close()
	e := look(t, path)
	_, err = e.Attach(bounded(t), lockkeeper.Session{ID: "a", TTL: time.Minute}, nil)
	if !errors.Is(err, lockkeeper.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}

// A watcher of a read-only engine receives every end once: before a process writes the end, and not
// again when one does.
func TestLookFollows(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	a := openFake(t, path, clock, "boot")
	ka := attach(t, a, "a", time.Hour, nil)
	kb := attach(t, a, "b", time.Minute, nil)
	claim(t, a, ka, exclusive(1, "site"))
	claim(t, a, kb, exclusive(1, "db"))
	e, err := open(bounded(t), path, options{looks: true}, clock.read, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan lockkeeper.Status, 100)
	go func() {
		for st, err := range e.List(ctx, lockkeeper.Query{Follow: true}) {
			if err != nil {
				t.Error(err)
			}
			seen <- st
		}
	}()
	next(t, seen, "b's hold", func(st lockkeeper.Status) bool { return st.Ref.Session == "b" })
	clock.advance(2 * time.Minute)
	if _, err := e.list(bounded(t), lockkeeper.Query{}); err != nil {
		t.Fatal(err)
	}
	next(t, seen, "its end", func(st lockkeeper.Status) bool {
		return st.Ref.Session == "b" && st.State == lockkeeper.Ended && st.Reason == lockkeeper.Expired
	})
	claim(t, a, ka, exclusive(2, "db"))
	st := next(t, seen, "anything more", func(st lockkeeper.Status) bool {
		return st.Ref.Session == "b" || st.Ref.ID == 2
	})
	if st.Ref.Session == "b" {
		t.Errorf("told once more: %+v", st)
	}
}
