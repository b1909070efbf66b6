package sqlitelock

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/migrations"
)

// nextSchema is the schema of a later program: ours and one migration more.
func nextSchema(t *testing.T, migration string) *migrations.Schema {
	t.Helper()
	first, err := fs.ReadFile(ownSchema().Files, "00001_locks.sql")
	if err != nil {
		t.Fatal(err)
	}
	s := migrations.New(fstest.MapFS{
		"00001_locks.sql": {Data: first},
		"00002_next.sql":  {Data: []byte(migration)},
	}, ".")
	return &s
}

const goodMigration = `ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'fine';
CREATE VIEW moods AS
SELECT id, mood FROM sessions; -- of everybody`

// execute runs statements on a file as another program would.
func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number reads one number from a file as another program would.
func number(t *testing.T, path, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// ownFile makes a file that holds one lock, which nobody uses.
func ownFile(t *testing.T) string {
	t.Helper()
	path := file(t)
	e := openReal(t, path)
	claim(t, e, attach(t, e, "a", time.Hour, nil), exclusive(1, "db"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A later program brings the file up to its own version, and keeps all rows. Older programs that
// use the file or open it later get an error.
func TestMigration(t *testing.T) {
	path := file(t)
	old := openReal(t, path)
	k := attach(t, old, "a", time.Minute, nil)
	claim(t, old, k, exclusive(1, "db"))
	before := snapshot(t, old)

	later := nextSchema(t, goodMigration)
	e, err := openHere(path, options{schema: later})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	compare(t, "after the migration", snapshot(t, e), before)
	if n := number(t, path, "SELECT count(*) FROM moods WHERE mood = 'fine'"); n != 1 {
		t.Errorf("the migration was not applied: %d rows, want 1", n)
	}
	if n := number(t, path, "SELECT 10 * layout + user_version FROM meta, pragma_user_version"); n != 22 {
		t.Errorf("layout and user_version are %d, want 22", n)
	}
	for _, call := range []func() error{
		func() error { _, err := old.Renew(bounded(t), k); return err },
		func() error { _, err := old.list(bounded(t), lockkeeper.Query{}); return err },
	} {
		if err := call(); !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "version 2") ||
			!strings.Contains(err.Error(), "restart") {
			t.Errorf("the program of before got %v, want ErrUnavailable and what to do", err)
		}
	}
	refused(t, path, lockkeeper.ErrInvalid, "version 2", "version 1", "update")
}

// A migration that fails, wherever, leaves the file as it was, for the program
// that it was made by.
func TestMigrationFails(t *testing.T) {
	path := ownFile(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := nextSchema(t, goodMigration+"\nCREATE TABLE meta (one TEXT);")
	if e, err := openHere(path, options{schema: bad}); err == nil {
		e.Close()
		t.Fatal("opened with a migration that can't work")
	} else if !strings.Contains(err.Error(), "meta") {
		t.Errorf("%v does not say what is wrong", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file is not as it was (%v)", err)
	}
	if held := snapshot(t, openReal(t, path)); len(held.Claims) != 0 && held.Claims[0].Fence != 1 {
		t.Errorf("after the failure: %+v", held)
	}
}

// Of many that bring one file up to date at once one does it, and all can go on.
func TestManyMigrateAtOnce(t *testing.T) {
	path := ownFile(t)
	later := nextSchema(t, goodMigration)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			e, err := openHere(path, options{schema: later})
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			claim(t, e, attach(t, e, fmt.Sprint("s", i), time.Minute, nil), exclusive(1, lockkeeper.Path(fmt.Sprint("p", i))))
		})
	}
	wg.Wait()
	if n := number(t, path, "SELECT fences FROM meta"); n != 11 {
		t.Errorf("%d fences were given, want 11", n)
	}
}

// copied is a copy of the file and the files beside it, as a killed process leaves them.
func copied(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if data, err := os.ReadFile(path + suffix); err == nil {
			if err := os.WriteFile(to+suffix, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// untouched opens a file that must be refused, and neither it nor its log may change.
func untouched(t *testing.T, path string, words ...string) {
	t.Helper()
	read := func() (all [3]string) {
		for i, suffix := range []string{"", "-wal", "-journal"} {
			data, _ := os.ReadFile(path + suffix)
			all[i] = string(data)
		}
		return all
	}
	before := read()
	refused(t, path, lockkeeper.ErrInvalid, words...)
	for i, after := range read() {
		if after != before[i] {
			t.Errorf("part %d had %d bytes, now %d, or others", i, len(before[i]), len(after))
		}
	}
}

// A file of another program is left alone also when that was killed while it
// wrote, and when all it wrote is still in the log.
func TestForeignFileInUse(t *testing.T) {
	foreign := func(t *testing.T, statements ...string) string {
		t.Helper()
		path := file(t)
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		return copied(t, path)
	}
	const table, fill = "CREATE TABLE songs (title TEXT)", "INSERT INTO songs SELECT hex(randomblob(1000)) FROM " +
		"json_each('[1,2,3,4,5,6,7,8]')"
	t.Run("log", func(t *testing.T) {
		path := foreign(t, table, "PRAGMA journal_mode = WAL", fill)
		untouched(t, path, "another program")
	})
	t.Run("all in the log", func(t *testing.T) {
		path := foreign(t, "PRAGMA journal_mode = WAL", table, fill)
		untouched(t, path, "another program")
	})
	t.Run("journal", func(t *testing.T) {
		path := foreign(t, table, fill, "PRAGMA cache_size = 2", "BEGIN", "UPDATE songs SET title = title || 'x'", fill)
		if info, err := os.Stat(path + "-journal"); err != nil || info.Size() == 0 {
			t.Fatalf("this test has no journal: %v", err)
		}
		untouched(t, path, "another program")
	})
	t.Run("newer", func(t *testing.T) {
		path := file(t)
		e := openReal(t, path)
		claim(t, e, attach(t, e, "a", time.Hour, nil), exclusive(1, "db"))
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("PRAGMA user_version = 7"); err != nil {
			t.Fatal(err)
		}
		untouched(t, copied(t, path), "version 7", "version 1", "update")
	})
	t.Run("damaged", func(t *testing.T) {
		path := file(t)
		e := openReal(t, path)
		claim(t, e, attach(t, e, "a", time.Hour, nil), exclusive(1, "db"))
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(`UPDATE claims SET targets = 'nonsense'`); err != nil {
			t.Fatal(err)
		}
		untouched(t, copied(t, path), "damaged")
	})
}
