package sqlitelock

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// refused opens a file that must be refused, and left as it is.
func refused(t *testing.T, path string, sentinel error, words ...string) {
	t.Helper()
	before, _ := os.ReadFile(path)
	e, err := Open(bounded(t), path)
	if err == nil {
		e.Close()
		t.Fatalf("%s was opened", path)
	}
	var told *lockkeeper.Error
	if !errors.Is(err, sentinel) || !errors.As(err, &told) {
		t.Errorf("got %v, want %v in an Error", err, sentinel)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

// sqlFile makes a SQLite database by statements.
func sqlFile(t *testing.T, statements ...string) string {
	t.Helper()
	path := file(t)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestWrongFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("text", func(t *testing.T) {
		refused(t, write("notes.txt", strings.Repeat("not a database at all\n", 100)), lockkeeper.ErrInvalid, "notes.txt",
			"no SQLite database")
	})
	t.Run("foreign", func(t *testing.T) {
		refused(t, sqlFile(t, "CREATE TABLE songs (title TEXT)"), lockkeeper.ErrInvalid, "another program", "locks.db")
	})
	t.Run("foreign without tables", func(t *testing.T) {
		refused(t, sqlFile(t, "PRAGMA application_id = 77"), lockkeeper.ErrInvalid, "another program")
	})
	t.Run("directory", func(t *testing.T) { refused(t, folder, lockkeeper.ErrInvalid, "directory") })
	t.Run("no name", func(t *testing.T) { refused(t, "", lockkeeper.ErrInvalid) })
	t.Run("no directory", func(t *testing.T) {
		refused(t, filepath.Join(folder, "missing", "locks.db"), lockkeeper.ErrUnavailable, "missing", "directory")
	})
	t.Run("file as directory", func(t *testing.T) {
		refused(t, filepath.Join(write("plain", "x"), "locks.db"), lockkeeper.ErrUnavailable, "directory")
	})
	t.Run("empty", func(t *testing.T) { openReal(t, write("empty.db", "")) })
}

func TestStrangeNames(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a b.db", "what?.db", "100%.db", "%2F.db", "a#b.db", "é.db", "q=1&mode=ro.db"} {
		path := filepath.Join(folder, name)
		openReal(t, path).Close()
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// A damaged file is refused, wherever the damage is, and never makes up locks.
func TestDamagedFile(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	for i, path := range []lockkeeper.Path{"db/a", "db/b", "c"} {
		claim(t, e, k, exclusive(uint64(i+1), path))
	}
	if err := e.Close(); err != nil { // without leaving: the rows stay
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole)%4096 != 0 || len(whole) < 8*4096 {
		t.Fatalf("the file has %d bytes: this test looks in the wrong place", len(whole))
	}
	detected := 0
	for page := range len(whole) / 4096 {
		damaged := bytes.Clone(whole)
		for i := range 512 {
			damaged[page*4096+i*8] ^= 0x5a
		}
		copied := file(t)
		if err := os.WriteFile(copied, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := Open(bounded(t), copied)
		if err != nil {
			detected++
			if !errors.Is(err, lockkeeper.ErrInvalid) {
				t.Errorf("page %d: got %v, want ErrInvalid", page, err)
			}
			continue
		}
		// Damage where nothing is stored, or in an index that is not read yet, may go unnoticed,
		// but no lock.
		if held := snapshot(t, e).Claims; len(held) != 3 {
			t.Errorf("page %d: opened with %d claims, want 3", page, len(held))
		}
		e.Close()
	}
	if detected < 3 {
		t.Errorf("damage was found in %d pages only", detected)
	}
	t.Run("rows that contradict each other", func(t *testing.T) {
		copied := file(t)
		if err := os.WriteFile(copied, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", copied)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`UPDATE claims SET targets = '[{"path":"db","mode":"exclusive"}]'`); err != nil {
			t.Fatal(err)
		}
		db.Close()
		refused(t, copied, lockkeeper.ErrInvalid, "damaged")
	})
}

// A process that opens the path must see the locks of those that have it open, so a file
// that was replaced under them is not used any more.
func TestReplacedFile(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	claim(t, e, k, exclusive(1, "db"))
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	check := func(words string) {
		t.Helper()
		_, err := e.Claim(bounded(t), k, exclusive(2, "other"))
		if !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrNotAcquired) ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want ErrUnavailable and %q", err, words)
		}
	}
	check(path + " was removed or replaced while it was in use")
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	if st := claim(t, e, k, exclusive(2, "other")); st.State != lockkeeper.Held {
		t.Errorf("after the file is back: %s", st.State)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	openReal(t, path)
	check(path + " was removed or replaced while it was in use")
}

// A holder whose file is removed is notified when it loses its holds.
func TestHolderIsNotifiedOfRemovedFile(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	c := lockkeeper.New(e, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	defer c.Close()
	hold, err := c.Lock(bounded(t), "db")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	select {
	case <-hold.Done():
	case <-bounded(t).Done():
		t.Fatal("never lost")
	}
	if err := hold.Err(); !errors.Is(err, lockkeeper.ErrLost) ||
		!strings.Contains(err.Error(), path+" was removed or replaced while it was in use") {
		t.Errorf("got %v, want ErrLost and why", err)
	}
}

// A file that is replaced in the very moment of a new connection is not used, not
// even for one transaction.
func TestReplacedFileAtConnection(t *testing.T) {
	path, other := file(t), file(t)
	c, _ := testClient(t, other)
	if _, err := c.Lock(bounded(t), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	var armed, failing atomic.Bool
	name := registerOpening(func() {
		if armed.CompareAndSwap(true, false) {
			for _, move := range [][2]string{{path, path + ".old"}, {other, path}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Error(err)
				}
			}
		}
	}, func(before bool, statement string) error {
		if failing.CompareAndSwap(true, false) {
			return errDisk
		}
		return nil
	})
	e, err := openHere(path, options{driver: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	k := attach(t, e, "a", time.Minute, nil)
	claim(t, e, k, exclusive(1, "db"))
	failing.Store(true)
	if _, err := e.Renew(bounded(t), k); !errors.Is(err, errDisk) {
		t.Fatalf("got %v, want a failure that ends the connection", err)
	}
	armed.Store(true)
	if st, err := e.Claim(bounded(t), k, exclusive(2, "other")); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), "was removed or replaced") {
		t.Errorf("got %s, %v, want that the file was replaced", st.State, err)
	}
	if armed.Load() {
		t.Fatal("it made no new connection")
	}
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	if st := claim(t, e, k, exclusive(2, "other")); st.State != lockkeeper.Held || st.Fence != 2 {
		t.Errorf("after the file is back: %s with fence %d", st.State, st.Fence)
	}
}

// A log that is removed while it is in use is noticed with the next call, and
// nothing of it is lost as long as nobody else has begun a new one.
func TestRemovedLog(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	claim(t, e, k, exclusive(1, "db"))
	before := snapshot(t, e)
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Renew(bounded(t), k); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), "-wal was removed") {
		t.Errorf("got %v, want ErrUnavailable and why", err)
	}
	if _, err := e.Renew(bounded(t), k); err != nil {
		t.Errorf("after that: %v", err)
	}
	after := snapshot(t, e)
	if len(after.Claims) != len(before.Claims) || after.Counters.Fences != before.Counters.Fences {
		t.Errorf("%d claims and fence %d, want %d and %d", len(after.Claims), after.Counters.Fences, len(before.Claims),
			before.Counters.Fences)
	}
	compare(t, "a process that comes later", snapshot(t, openReal(t, path)), after)
}

// A file that becomes smaller while it is in use is read again: cut short it is
// refused, tidied up by SQLite itself it is as good as before.
func TestSmallerFile(t *testing.T) {
	for _, cut := range []bool{true, false} {
		path := file(t)
		e := openReal(t, path)
		k := attach(t, e, "a", time.Minute, nil)
		for i := range 100 {
			claim(t, e, k, exclusive(uint64(i+1), lockkeeper.Path(fmt.Sprint("p", i))))
		}
		execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
		claim(t, e, k, exclusive(101, "last"))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !cut {
			if _, err := e.list(bounded(t), lockkeeper.Query{}); err != nil {
				t.Fatal(err)
			}
			execute(t, path, "CREATE TABLE big (x)", "INSERT INTO big VALUES (zeroblob(1000000))",
				"PRAGMA wal_checkpoint(TRUNCATE)")
			claim(t, e, k, exclusive(102, "next"))
			execute(t, path, "DROP TABLE big", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
			if st := claim(t, e, k, exclusive(103, "after")); st.State != lockkeeper.Held || len(snapshot(t, e).Claims) != 103 {
				t.Errorf("after a tidying up: %s", st.State)
			}
			continue
		}
		if err := os.Truncate(path, info.Size()/2/4096*4096); err != nil {
			t.Fatal(err)
		}
		if st, err := e.Claim(bounded(t), k, exclusive(102, "next")); !errors.Is(err, lockkeeper.ErrUnavailable) ||
			!strings.Contains(err.Error(), "damaged") {
			t.Errorf("cut short: got %s, %v, want ErrUnavailable and that it is damaged", st.State, err)
		}
	}
}

// People read the locks with the sqlite3 tool.
func TestViews(t *testing.T) {
	path := file(t)
	a, _ := testClient(t, path)
	b, _ := testClient(t, path)
	if _, err := a.Acquire(bounded(t), lockkeeper.Exclusive("db/x"), lockkeeper.Permits("net", 2, 5),
		lockkeeper.WithAs("anna"), lockkeeper.WithNote("tests")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Enqueue(bounded(t), lockkeeper.Shared("db"), lockkeeper.WithAs("ben")); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var held, waiting string
	const columns = "group_concat(path || ' ' || mode || ' ' || coalesce(units, '-') || ' ' || who, ', ')"
	if err := db.QueryRow("SELECT " + columns + " FROM held").Scan(&held); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow("SELECT " + columns + " FROM waiting").Scan(&waiting); err != nil {
		t.Fatal(err)
	}
	if want := "db/x exclusive - anna, net permits 2 anna"; held != want {
		t.Errorf("held: %s, want %s", held, want)
	}
	if want := "db shared - ben"; waiting != want {
		t.Errorf("waiting: %s, want %s", waiting, want)
	}
	tool, err := exec.LookPath("sqlite3")
	if err != nil {
		return // the driver has read the views above; where the tool is there, it must read the same
	}
	out, err := exec.Command(tool, path, "SELECT path, who, seconds < 60 FROM held").CombinedOutput()
	if err != nil || string(out) != "db/x|anna|1\nnet|anna|1\n" {
		t.Errorf("sqlite3: %s (%v)", out, err)
	}
}
