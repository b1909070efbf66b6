package sqlitelock

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

var _ lockkeeper.Examiner = (*Engine)(nil)

var allChecks = []string{"file", "contents", "log", "file system", "free space", "crash detection", "permissions",
	"session files", "wake-ups", "sessions", "dead processes", "time"}

// examined returns the findings, by their checks, which must all be there, and
// whatever is not fine must say what to do.
func examined(t *testing.T, e *Engine) map[string]lockkeeper.Finding {
	t.Helper()
	byCheck := make(map[string]lockkeeper.Finding)
	var order []string
	for _, f := range e.Examine(bounded(t)) {
		byCheck[f.Check] = f
		order = append(order, f.Check)
		if f.Detail == "" || (f.Grade == lockkeeper.Fine) != (f.Remedy == "") {
			t.Errorf("%+v: it needs a detail, and a remedy unless it is fine", f)
		}
	}
	if !slices.Equal(order, allChecks) {
		t.Errorf("checks %q, want %q", order, allChecks)
	}
	return byCheck
}

func expect(t *testing.T, f lockkeeper.Finding, grade lockkeeper.Grade, words string) {
	t.Helper()
	if f.Grade != grade || !strings.Contains(f.Detail+" "+f.Remedy, words) {
		t.Errorf("%s: %s, %q, %q; want %s and %q", f.Check, f.Grade, f.Detail, f.Remedy, grade, words)
	}
}

func TestExamineFine(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	claim(t, e, k, exclusive(1, "db"))
	claim(t, e, k, exclusive(2, "db/x"))
	before := snapshot(t, e)
	for check, f := range examined(t, e) {
		t.Logf("%s: %s", check, f.Detail)
		if f.Grade != lockkeeper.Fine && check != "free space" && check != "wake-ups" {
			t.Errorf("%+v", f)
		}
	}
	found := examined(t, e)
	expect(t, found["file"], lockkeeper.Fine, path)
	expect(t, found["sessions"], lockkeeper.Fine, "1, of which 1 have a process; 1 held, 1 waiting")
	compare(t, "after it was examined", snapshot(t, e), before)
	if left, err := os.ReadDir(path + "-sessions"); err != nil || len(left) != 1 {
		t.Errorf("%d session files, want that of the session alone (%v)", len(left), err)
	}
}

func TestExamineFindsWhatIsWrong(t *testing.T) {
	t.Run("careless", func(t *testing.T) {
		e, err := openHere(file(t), options{careless: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		expect(t, examined(t, e)["log"], lockkeeper.Doubtful, "synchronous off")
	})
	t.Run("for everybody", func(t *testing.T) {
		e := openReal(t, file(t))
		if err := os.Chmod(e.db.path, 0o666); err != nil {
			t.Fatal(err)
		}
		expect(t, examined(t, e)["permissions"], lockkeeper.Doubtful, "chmod o-w")
	})
	t.Run("two names", func(t *testing.T) {
		e := openReal(t, file(t))
		if err := os.Link(e.db.path, filepath.Join(filepath.Dir(e.db.path), "other.db")); err != nil {
			t.Skip(err)
		}
		expect(t, examined(t, e)["file"], lockkeeper.Broken, "2 names")
	})
	t.Run("gone", func(t *testing.T) {
		e := openReal(t, file(t))
		if err := os.Remove(e.db.path); err != nil {
			t.Fatal(err)
		}
		found := examined(t, e)
		expect(t, found["file"], lockkeeper.Broken, "is gone")
		expect(t, found["sessions"], lockkeeper.Broken, "nothing could be read")
	})
	t.Run("replaced", func(t *testing.T) {
		e := openReal(t, file(t))
		if err := os.Rename(e.db.path, e.db.path+".old"); err != nil {
			t.Fatal(err)
		}
		openReal(t, e.db.path)
		expect(t, examined(t, e)["file"], lockkeeper.Broken, "another file")
	})
	t.Run("damaged", func(t *testing.T) {
		e := openReal(t, file(t))
		attach(t, e, "a", time.Minute, nil)
		execute(t, e.db.path, "PRAGMA ignore_check_constraints = ON; UPDATE meta SET one = 2")
		expect(t, examined(t, e)["contents"], lockkeeper.Broken, "remove the file")
	})
	t.Run("closed", func(t *testing.T) {
		e := openReal(t, file(t))
		e.Close()
		expect(t, examined(t, e)["file"], lockkeeper.Broken, "closed")
	})
	t.Run("no time", func(t *testing.T) {
		e := openReal(t, file(t))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if n := len(e.Examine(ctx)); n != len(allChecks) {
			t.Errorf("%d findings, want %d", n, len(allChecks))
		}
	})
}

func TestExamineTheDead(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	expect(t, examined(t, e)["dead processes"], lockkeeper.Fine, "no session")
	holder.Kill()
	expect(t, examined(t, e)["dead processes"], lockkeeper.Doubtful, "are dead: p")
	if err := os.RemoveAll(path + "-sessions"); err != nil {
		t.Fatal(err)
	}
	expect(t, examined(t, e)["dead processes"], lockkeeper.Doubtful, "are gone")
}

func TestExamineTime(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	clock.set(time.Hour)
	e := openFake(t, path, clock, "boot")
	clock.advance(time.Minute)
	attach(t, e, "a", time.Minute, nil)
	clock.set(0)
	expect(t, examined(t, e)["time"], lockkeeper.Doubtful, "1h1m0s less")
}
