package disklock

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// died returns a directory as it was while an engine had it, with claims in it.
func died(t *testing.T) string {
	e := openHere(t, t.TempDir(), options{careless: true})
	ann := attachTo(t, e, "ann")
	ann.hold("db")
	ann.hold("y/a")
	if err := ann.release(1); err != nil {
		t.Fatal(err)
	}
	ann.hold("x")
	dir := crash(t, e)
	e.Close()
	return dir
}

func dump(t *testing.T, dir string) (string, error) {
	var out bytes.Buffer
	err := Dump(t.Context(), dir, &out)
	return out.String(), err
}

// TestDumpChangesNothing: a dump has the entries, and leaves the directory as it is, so that it can
// be opened afterwards.
func TestDumpChangesNothing(t *testing.T) {
	dir := died(t)
	before := readFolder(t, dir)
	text, err := dump(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"state open, opened last by lockkeeper", "snapshot 0: row=0 rules=3 records=0", "  restart\n",
		" attach ann ttl=1m", " claim ann 2 exclusive y/a", " release ann 1 ", " claim ann 3 exclusive x",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the dump has no %q:\n%s", line, text)
		}
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) > 4 {
		t.Errorf("the directory has %v (%v)", after, err)
	}
	for name, b := range readFolder(t, dir) {
		if !slices.Equal(before[name], b) {
			t.Errorf("%s is changed", name)
		}
	}
	openHere(t, dir, options{careless: true}).Close()
	if text, err = dump(t, dir); err != nil || !strings.Contains(text, "state closed") ||
		!strings.Contains(text, "  session id=ann ttl=1m") || !strings.Contains(text, "  claim ref=ann.3 ") ||
		strings.Contains(text, "\nrow ") {
		t.Errorf("after a clean end the dump is (%v)\n%s", err, text)
	}
}

func TestDumpRefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	e := openHere(t, dir, options{careless: true})
	defer e.Close()
	text, err := dump(t, dir)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "in use by process") || text != "" {
		t.Errorf("%q, %v; want ErrUnavailable that says by which process it is in use", text, err)
	}
}

func TestDumpRefusesADirectoryWithoutJournal(t *testing.T) {
	dir := t.TempDir()
	for _, dir := range []string{dir, dir + "/none"} {
		if _, err := dump(t, dir); !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "no journal") {
			t.Errorf("%s: %v, want ErrInvalid that says that there is no journal", dir, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("the directory has %v (%v)", all, err)
	}
}

// TestDumpStopsAtDamage: a dump shows the rows before the damage and says where the damage is.
func TestDumpStopsAtDamage(t *testing.T) {
	f := folder{path: died(t)}
	s, err := openStore(f.journal(), dbfolder.Use{Careless: true})
	if err == nil {
		err = errors.Join(s.Exec("UPDATE journal SET entries = zeroblob(length(entries)) WHERE seq = 3"), s.close())
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := dump(t, f.path)
	if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "row 3") {
		t.Errorf("%v, want ErrInvalid that names row 3", err)
	}
	if !strings.Contains(text, "row 2: ") || strings.Contains(text, "row 3: ") || strings.Contains(text, "row 4: ") {
		t.Errorf("the dump does not end before row 3:\n%s", text)
	}
}

// TestDumpOfFlippedBits: whatever bit of a journal is flipped, a dump ends, and says so or has it all,
// but for the name of the program that opened it last, which nothing depends on.
func TestDumpOfFlippedBits(t *testing.T) {
	random := testmode.Rand(t)
	dir := died(t)
	whole, err := dump(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	content := func(text string) string {
		_, text, _ = strings.Cut(text, "\n") // the first line names the directory
		before, rest, _ := strings.Cut(text, ", opened last by ")
		_, rest, _ = strings.Cut(rest, "\n")
		return before + "\n" + rest
	}
	whole = content(whole)
	files := image{files: readFolder(t, dir)}
	image := t.TempDir()
	for range 60 {
		for _, name := range []string{"journal.db", "journal.db-wal"} {
			b := slices.Clone(files.files[name])
			if len(b) == 0 {
				continue
			}
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			text, err := dump(t, files.with(name, b).put(t, image).path)
			if text = content(text); err == nil && text != whole {
				// The last transaction of the log may be torn.
				if rest, found := strings.CutPrefix(whole, text); !found || strings.Count(rest, "\nrow ") > 1 {
					t.Errorf("%s is damaged, and the dump says nothing:\n%s\nwas\n%s", name, text, whole)
				}
			}
		}
	}
}
