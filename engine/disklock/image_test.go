package disklock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// image is what the files of a directory were at one moment.
type image struct {
	seq    uint64 // the last row that was safe
	files  map[string][]byte
	before []byte // the mark as it was before this row
	ended  int64  // where the log ended with the row before, if it is the same log
}

// album is images of a directory in use, and the counters after every row.
type album struct {
	images   []image
	counters map[uint64]table.Counters
}

// shoot takes images of a busy journal, at about one row of every, and keeps some of
// them, at most so many. Meanwhile there are snapshots and checkpoints. How many rows
// a use makes depends on how much of it shares a commit, so it is used until there
// are enough.
func shoot(t *testing.T, seed uint64, every, most int) *album {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(seed, 0))
	a := &album{counters: make(map[uint64]table.Counters)}
	var taken sync.Mutex // guards all that committed writes, until the engine is closed
	var last image
	e := openHere(t, dir, options{careless: true, snapshotEvery: 40, checkpointPages: 60, committed: func(r *row) {
		taken.Lock()
		defer taken.Unlock()
		a.counters[r.seq] = r.after
		if r.seq%uint64(every) != 0 && r.seq%uint64(every) != uint64(every)-1 {
			return
		}
		now := image{seq: r.seq, files: readFolder(t, dir), before: last.files["mark"]}
		if last.seq == r.seq-1 && slices.Equal(head(now), head(last)) {
			now.ended = int64(len(committedLog(t, last)))
			a.images = append(a.images, now)
		}
		last = now
	}})
	enough := func() bool {
		taken.Lock()
		defer taken.Unlock()
		return len(a.images) >= 5 && last.seq > 100 // snapshotEvery twice, and some
	}
	for round := 0; round < 20 && !enough() && !t.Failed(); round++ {
		busy(t, e, random, fmt.Sprint("round", round, "-"), 6, 200)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// A few will do.
	random.Shuffle(len(a.images), func(i, k int) { a.images[i], a.images[k] = a.images[k], a.images[i] })
	if e.journal.header.number < 2 || len(a.images) < 5 {
		t.Fatalf("seed %d: %d snapshots and %d images are too few", seed, e.journal.header.number, len(a.images))
	}
	a.images = a.images[:min(most, len(a.images))]
	return a
}

// logHeader is the size of the header of SQLite's log.
const logHeader = 32

// head is what tells one log from another.
func head(i image) []byte {
	return i.files["journal.db-wal"][:min(logHeader, len(i.files["journal.db-wal"]))]
}

// committedLog is the log of an image up to its last commit.
func committedLog(t *testing.T, i image) []byte {
	b := i.files["journal.db-wal"]
	log, err := dbfolder.ParseLog(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:log.Committed]
}

func readFolder(t testing.TB, dir string) map[string][]byte {
	files := make(map[string][]byte)
	for _, name := range []string{"journal.db", "journal.db-wal", "mark"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err == nil {
			files[name] = text
		}
	}
	return files
}

// put writes the files of the image into a new directory.
func (i image) put(t testing.TB, dir string) folder {
	t.Helper()
	for _, name := range []string{"journal.db", "journal.db-wal", "journal.db-shm", "mark"} {
		path := filepath.Join(dir, name)
		err := os.Remove(path)
		if os.IsNotExist(err) {
			err = nil
		}
		if text, there := i.files[name]; err == nil && there {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder{path: dir}
}

// with is the image with other contents of one file.
func (i image) with(name string, text []byte) image {
	files := make(map[string][]byte)
	for n, old := range i.files {
		files[n] = old
	}
	if files[name] = text; text == nil {
		delete(files, name)
	}
	i.files = files
	return i
}

// busy has users do things at random directly on the engine, until each has done ops.
func busy(t testing.TB, e *Engine, random *rand.Rand, who string, users, ops int) {
	var running sync.WaitGroup
	for i := range users {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		running.Go(func() {
			if err := useAtRandom(e, own, who+fmt.Sprint(i), ops); err != nil {
				t.Errorf("user %d: %v", i, err)
			}
		})
	}
	running.Wait()
}

// useAtRandom returns the first error that is no refusal.
func useAtRandom(e lockkeeper.Engine, random *rand.Rand, id string, ops int) error {
	ctx := context.Background()
	attach := func(epoch uint64, named ...uint64) (lockkeeper.Key, error) {
		lease, err := e.Attach(ctx, lockkeeper.Session{
			ID:    id,
			TTL:   time.Hour,
			Epoch: epoch,
			Named: named,
			Label: lockkeeper.Label{As: id},
		}, nil)
		return lease.Key, err
	}
	key, err := attach(0)
	last := uint64(0)
	for n := 0; n < ops && err == nil; n++ {
		key.LowestOpen = last - min(last, random.Uint64N(9))
		key.Acked = random.Uint64N(9)
		switch p := random.IntN(20); {
		case p < 1:
			key, err = attach(key.Epoch, last, last-1)
		case p < 3:
			_, err = e.Renew(ctx, key)
		case p < 12:
			last++
			path := lockkeeper.Path([]string{"db", "db/a", "db/b", "x", "y", "z"}[random.IntN(6)])
			w := lockkeeper.Want{
				ID:       last,
				Targets:  []lockkeeper.Target{{Path: path, Mode: lockkeeper.Mode(1 + random.IntN(2))}},
				Priority: random.IntN(3),
			}
			w.Wait = []time.Duration{0, time.Hour, lockkeeper.Forever}[random.IntN(3)]
			w.Steal = lockkeeper.Steal(random.IntN(2))
			w.Note = "a note that makes the entry longer"
			_, err = e.Claim(ctx, key, w)
		default:
			err = e.End(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: max(1, last-uint64(random.IntN(4)))})
		}
		if errors.Is(err, lockkeeper.ErrNotHeld) || errors.Is(err, lockkeeper.ErrDeadlock) {
			err = nil
		}
	}
	return err
}

// judge opens what may be damaged. It is either refused, or all of it is there up to
// the row least, and nothing else than there was. It reports whether it was opened.
func (a *album) judge(t *testing.T, f folder, least uint64, what string) bool {
	t.Helper()
	r, err := f.recover(context.Background(), options{driver: "sqlite", careless: true})
	if err != nil {
		return false
	}
	if r.seq < least {
		t.Errorf("%s: it ends with row %d, though row %d was safe", what, r.seq, least)
	}
	if want, known := a.counters[r.seq]; !known || r.table.Counters() != want {
		t.Errorf("%s: after row %d the counters are %+v, want %+v", what, r.seq, r.table.Counters(), want)
	}
	return true
}

// TestCrashAtAnyCommitLosesNothing: whatever moment the process dies at, all that was safe is there.
func TestCrashAtAnyCommitLosesNothing(t *testing.T) {
	seed := testmode.Seed(t)
	a := shoot(t, seed, 7, 40)
	dir := t.TempDir()
	for _, i := range a.images {
		if !a.judge(t, i.put(t, dir), i.seq, fmt.Sprintf("seed %d, row %d", seed, i.seq)) {
			_, err := i.put(t, dir).recover(context.Background(), options{driver: "sqlite", careless: true})
			t.Errorf("seed %d, row %d: refused: %v", seed, i.seq, err)
		}
	}
}

// TestCutLogLosesOnlyUnsafeRows: a log that ends anywhere behind what was safe opens with all that was;
// one that ends before is refused.
func TestCutLogLosesOnlyUnsafeRows(t *testing.T) {
	seed := testmode.Seed(t)
	a := shoot(t, seed, 23, 3)
	dir := t.TempDir()
	opened, refused := 0, 0
	for _, i := range a.images {
		log := i.files["journal.db-wal"]
		end := int64(len(committedLog(t, i)))
		i.files["mark"] = i.before
		for cut := max(0, i.ended-3*pageSize) &^ 511; cut <= end; cut += 512 {
			for _, torn := range []bool{false, true} {
				short := slices.Clone(log[:cut])
				if torn { // the room was there, but not what was written into it
					short = append(short, make([]byte, int64(len(log))-cut)...)
				}
				what := fmt.Sprintf("seed %d, row %d, its log of %d cut at %d (torn %v), where the row before ended at %d", seed,
					i.seq, end, cut, torn, i.ended)
				switch open := a.judge(t, i.with("journal.db-wal", short).put(t, dir), i.seq-1, what); {
				case open:
					opened++
				case cut >= i.ended:
					_, err := i.with("journal.db-wal", short).put(t, dir).recover(context.Background(),
						options{driver: "sqlite", careless: true})
					t.Errorf("%s: refused: %v", what, err)
				default:
					refused++
				}
			}
		}
	}
	t.Logf("%d opened, %d refused", opened, refused)
	if opened == 0 || refused == 0 {
		t.Error("that proves nothing")
	}
}

// TestFlippedBitsAreFound: a bit that changed anywhere is found, or does no harm.
func TestFlippedBitsAreFound(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	a := shoot(t, seed, 31, 4)
	dir := t.TempDir()
	opened, refused := 0, 0
	for _, i := range a.images {
		whole, err := i.put(t, dir).recover(context.Background(), options{driver: "sqlite", careless: true})
		if err != nil {
			t.Fatal(err)
		}
		want := whole.table.Snapshot()
		for n := range 60 {
			name := []string{"journal.db", "journal.db-wal", "mark"}[n%3]
			text := slices.Clone(i.files[name])
			if len(text) == 0 {
				continue
			}
			at, bit := random.IntN(len(text)), byte(1)<<random.IntN(8)
			if name == "journal.db-wal" {
				at = random.IntN(max(1, len(committedLog(t, i))))
			}
			text[at] ^= bit
			what := fmt.Sprintf("seed %d, row %d, byte %d of %s", seed, i.seq, at, name)
			flipped := i.with(name, text)
			f := flipped.put(t, dir)
			if !a.judge(t, f, i.seq, what) {
				refused++
				for name, text := range readFolder(t, dir) {
					if !slices.Equal(text, flipped.files[name]) {
						t.Errorf("%s: refused, and %s is changed", what, name)
					}
				}
				continue
			}
			opened++
			f = flipped.put(t, dir)
			r, err := f.recover(context.Background(), options{driver: "sqlite", careless: true})
			if err != nil {
				t.Errorf("%s: opened, and then refused: %v", what, err)
			} else if got := r.table.Snapshot(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: it is opened with\n%+v\nwant\n%+v", what, got, want)
			}
		}
	}
	t.Logf("%d opened, %d refused", opened, refused)
	if refused == 0 {
		t.Error("that proves nothing")
	}
}

// TestDamagedLogIsNotATornTail: without the mark of this run of the computer, as
// after a loss of power, a frame that is wrong is found if there is a later
// transaction behind it.
func TestDamagedLogIsNotATornTail(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	a := shoot(t, seed, 11, 50)
	dir := t.TempDir()
	tried := 0
	for _, i := range a.images {
		log := slices.Clone(committedLog(t, i))
		if i.ended <= logHeader {
			continue
		}
		// In a frame's data or checksum, before the last transaction.
		state, _ := dbfolder.ParseLog(log)
		frame := random.IntN((int(i.ended) - logHeader) / state.FrameSize)
		at := logHeader + frame*state.FrameSize + 16 + random.IntN(state.FrameSize-16)
		log[at] ^= 1 << random.IntN(8)
		old := dbfolder.Mark{Boot: "another run"}
		f := i.with("journal.db-wal", log).with("mark", []byte(old.String())).put(t, dir)
		if _, err := dbfolder.ExamineLog(f.log()); err == nil {
			t.Errorf("row %d: byte %d of the log, in frame %d, is wrong and not found", i.seq, at, frame+1)
		}
		tried++
	}
	if tried == 0 {
		t.Error("that proves nothing")
	}
}

// TestMissingFilesAreRefused: what is missing is said, and nothing is made in its place.
func TestMissingFilesAreRefused(t *testing.T) {
	a := shoot(t, testmode.Seed(t), 23, 1)
	i := a.images[0]
	dir := t.TempDir()
	other := dbfolder.Mark{Seq: i.seq, Boot: "another run"}
	for _, c := range []struct {
		what string
		made image
	}{
		{"journal.db", i.with("journal.db", nil)},
		{"journal.db", i.with("journal.db", []byte{})},
		{"mark", i.with("mark", nil)},
		{"mark", i.with("mark", []byte("lockkeeper mark 1\nseq 1\n"))},
		{"journal.db-wal", i.with("journal.db-wal", nil)},
		{"journal.db-wal", i.with("journal.db-wal", nil).with("mark", []byte(other.String()))},
		{"journal.db", i.with("journal.db-wal", []byte{})},
	} {
		f := c.made.put(t, dir)
		for range 2 { // the first must not make the second pass
			_, err := f.recover(context.Background(), options{driver: "sqlite", careless: true})
			if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), filepath.Join(dir, c.what)) {
				t.Errorf("without %s: %v, want ErrInvalid that names it", c.what, err)
			}
		}
		after := readFolder(t, dir)
		for name, text := range c.made.files {
			if !slices.Equal(after[name], text) {
				t.Errorf("without %s: %s was changed", c.what, name)
			}
		}
	}
}

// TestEmptiedMarkAcceptsAnOlderCopy: an emptied mark takes what is there, an older copy too.
func TestEmptiedMarkAcceptsAnOlderCopy(t *testing.T) {
	a := shoot(t, testmode.Seed(t), 23, 1)
	i := a.images[0]
	newer := dbfolder.Mark{Seq: i.seq + 1, Boot: dbfolder.BootID()}
	dir := t.TempDir()
	f := i.with("mark", []byte(newer.String())).put(t, dir)
	if _, err := f.recover(context.Background(), options{driver: "sqlite",
		careless: true}); !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("an older copy: %v, want ErrInvalid that says so", err)
	}
	if err := os.WriteFile(f.mark(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := openHere(t, dir, options{careless: true})
	if m, err := dbfolder.ReadMark(f.mark()); err != nil || m.Waiver || m.Seq < i.seq {
		t.Errorf("the mark is %v (%v) once it is open", m, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestSQLiteShellMovesTheLog: a program such as sqlite3 that reads the database after a crash moves
// the log into it and removes the log. Nothing is lost by that, as the mark tells.
func TestSQLiteShellMovesTheLog(t *testing.T) {
	a := shoot(t, testmode.Seed(t), 23, 1)
	i := a.images[0]
	f := i.put(t, t.TempDir())
	db, err := sql.Open("sqlite", f.journal())
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM journal").Scan(&n); err != nil || n == 0 {
		t.Errorf("there are %d rows to be seen (%v)", n, err)
	}
	db.Close()
	if log, _ := dbfolder.ExamineLog(f.log()); !log.Missing {
		t.Fatal("the log is still there: that proves nothing")
	}
	if !a.judge(t, f, i.seq, "looked at") {
		t.Error("refused, though nothing is missing")
	}
}
