package disklock

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// written writes the commands into the journal of a new folder, as an engine that was killed, and
// returns the table after them.
func written(t *testing.T, dir string, commands []table.Command) *table.Table {
	t.Helper()
	s := emptyStore(t, folder{path: dir})
	tb := table.New()
	r := story.New(tb, nil)
	chain := uint64(0)
	for i, c := range commands {
		c = r.Complete(c)
		reply, err := tb.Step(&c)
		r.Learn(c, reply, err)
		after := tb.Counters()
		logged := asLogged(c, err)
		logged.At = after.Now
		var entries record.Batch
		entries.Append(&logged)
		b := row{seq: uint64(i + 1), count: 1, entries: entries.Bytes(), after: after}
		b.sum = b.seal(chain)
		chain = b.sum
		if err := s.append(&b); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mark"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return tb
}

// asLogged returns what the keeper logs of a command.
func asLogged(c table.Command, refused error) table.Command {
	if refused == nil {
		return c
	}
	pass := table.Command{Op: table.Pass}
	if c.Op != table.Attach && !errors.Is(refused, lockkeeper.ErrSession) {
		pass.Key = c.Key
	}
	return pass
}

// The other engine gets the whole table: sessions, holds, queues, fences, freezes, as they are after
// a restart.
func TestMoveHasTheTableAfterARestart(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(10, 1000)) {
		dir := t.TempDir()
		want := written(t, dir, model.Generate(seed, 80))
		if _, err := want.Step(&table.Command{At: want.Now(), Op: table.Restart}); err != nil {
			t.Fatal(err)
		}
		m, err := BeginMove(t.Context(), dir)
		if err != nil {
			t.Fatalf("%v\nreplay: %s", err, testmode.Replay(t, seed))
		}
		if got := m.Table().Snapshot(); !reflect.DeepEqual(got, want.Snapshot()) {
			t.Errorf("the table is\n%+v\nwant\n%+v\nreplay: %s", got, want.Snapshot(), testmode.Replay(t, seed))
		}
		m.Close()
	}
}

// held makes a folder in which ann has db, and returns the fence.
func held(t *testing.T) (dir string, fence uint64) {
	t.Helper()
	dir = t.TempDir()
	e := openHere(t, dir, options{})
	defer e.Close()
	return dir, attachTo(t, e, "ann").hold("db")
}

func TestMoveThatIsClosedChangesNothing(t *testing.T) {
	dir, fence := held(t)
	before := readFolder(t, dir)
	m, err := BeginMove(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("opened during the move: %v, want ErrUnavailable", err)
	}
	if _, err := BeginMove(t.Context(), dir); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a second move: %v, want ErrUnavailable", err)
	}
	m.Close()
	if after := readFolder(t, dir); !reflect.DeepEqual(after, before) {
		t.Error("the files have changed")
	}
	e := openHere(t, dir, options{})
	defer e.Close()
	bob := attachTo(t, e, "bob")
	if again := bob.hold("other"); again <= fence {
		t.Errorf("fence %d after fence %d", again, fence)
	}
}

// Whatever a person does with the files of a retired directory, short of writing all of an older
// copy over it, it does not open.
func TestRetiredDirectoryIsRefused(t *testing.T) {
	dir, _ := held(t)
	before := readFolder(t, dir)
	m, err := BeginMove(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	const to = `node "n1" of the other`
	if err := m.Retire(""); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("moved to nobody: %v, want ErrInvalid", err)
	}
	if err := m.Retire(to); err != nil {
		t.Fatal(err)
	}
	m.Close()
	after := readFolder(t, dir)
	with := func(name string, content []byte) image {
		files := map[string][]byte{name: content}
		for n, b := range after {
			if n != name {
				files[n] = b
			}
		}
		if content == nil {
			delete(files, name)
		}
		return image{files: files}
	}
	for name, c := range map[string]struct {
		files image
		words string
	}{
		"as it is":           {image{files: after}, to},
		"without its log":    {with("journal.db-wal", nil), to},
		"without its mark":   {with("mark", nil), to},
		"with an empty mark": {with("mark", []byte{}), to},
		"the older database": {with("journal.db", before["journal.db"]), "older copy"},
	} {
		put := c.files.put(t, t.TempDir())
		_, err := Open(t.Context(), put.path)
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.words)
		}
	}
	var text bytes.Buffer
	if err := Dump(t.Context(), dir, &text); err != nil || !strings.Contains(text.String(), "moved to "+to) {
		t.Errorf("the dump is\n%s(%v)\nwant it to say %q", text.String(), err, "moved to "+to)
	}
	again, err := BeginMove(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.MovedTo() != to || again.Table() != nil {
		t.Errorf("moved to %q, table %v; want %q and no table", again.MovedTo(), again.Table(), to)
	}
	if err := again.Retire("a third one"); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("moved a second time: %v, want ErrInvalid", err)
	}
}

// A person who knows that the other engine never ran gives the locks back, as docs/engines/cluster-disk.md says.
func TestLocksMayBeGivenBack(t *testing.T) {
	dir, _ := held(t)
	m, err := BeginMove(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Retire("a node"); err != nil {
		t.Fatal(err)
	}
	m.Close()
	s, err := openStore(filepath.Join(dir, "journal.db"), dbfolder.Use{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Exec("UPDATE meta SET moved = ''"), s.close()); err != nil {
		t.Fatal(err)
	}
	e := openHere(t, dir, options{})
	defer e.Close()
	for st, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if err != nil || st.State != lockkeeper.Held || st.Ref.Session != "ann" {
			t.Errorf("%v, %v, want the hold of ann", st, err)
		}
	}
}

func TestMoveNeedsAJournal(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := BeginMove(t.Context(), name); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it made %v (%v)", entries, err)
	}
}
