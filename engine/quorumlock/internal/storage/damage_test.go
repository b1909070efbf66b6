package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// An image is the files of a node after a transaction.
type image struct {
	files
	state replica.State
}

// images returns the files after each of n writes of a script, as a process leaves them that dies
// there, and last the files of the closed node. checkpoints are the files after each checkpoint; they
// have the state of the image before them, whose number they are under.
func images(t *testing.T, seed uint64, n int) (all []image, checkpoints map[int]files) {
	t.Helper()
	dir := newNode(t)
	sc := newScript(seed)
	checkpoints = make(map[int]files)
	taking := false
	o := options{careless: true, checkpointPages: 60}
	o.committed = func(uint64) {
		if taking {
			all = append(all, image{readFiles(t, dir), sc.state})
		}
	}
	o.checkpointed = func() { checkpoints[len(all)-1] = readFiles(t, dir) }
	s := reopen(t, dir, o)
	taking = true
	for range n {
		mustWrite(t, s, sc.next())
	}
	taking = false
	s.mustClose(t)
	return append(all, image{readFiles(t, dir), sc.state}), checkpoints
}

// committed returns the end of the log's last transaction.
func (f files) committed(t testing.TB) int {
	t.Helper()
	log, err := dbfolder.ParseLog(f["node.db-wal"])
	if err != nil {
		t.Fatal(err)
	}
	return int(log.Committed)
}

// judge opens files that may be damaged. It reports whether they are accepted; then they must have
// that state. An error must be of a kind that keeps the node from starting, and have words.
func judge(t *testing.T, dir string, f files, want replica.State, what string) bool {
	t.Helper()
	c, err := f.recovered(t, dir)
	if err == nil {
		if d := difference(c.state, want); d != "" {
			t.Errorf("%s: accepted with %s", what, d)
		}
		return true
	}
	if !errors.Is(err, lockkeeper.ErrInvalid) && !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("%s: refused with %v, want ErrInvalid or ErrUnavailable", what, err)
	}
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("%s: refused with %v, want the name of the file", what, err)
	}
	return false
}

// A process may die after any transaction, and between a checkpoint's writes to the database, in any
// order and torn.
func TestDeathAtAnyTransactionLosesNothing(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	all, checkpoints := images(t, seed, testmode.Pick(60, 400))
	dir := t.TempDir()
	for n, i := range all {
		if !judge(t, dir, i.files, i.state, fmt.Sprint("write ", n+1)) {
			_, err := i.recovered(t, dir)
			t.Errorf("write %d: refused: %v", n+1, err)
		}
	}
	if len(checkpoints) == 0 {
		t.Fatal("no checkpoint: that proves nothing")
	}
	for n, after := range checkpoints {
		for range 5 {
			f := all[n].with("node.db", mixed(random, all[n].files["node.db"], after["node.db"]))
			if !judge(t, dir, f, all[n].state, fmt.Sprint("within the checkpoint after write ", n+1)) {
				_, err := f.recovered(t, dir)
				t.Errorf("within the checkpoint after write %d: refused: %v", n+1, err)
			}
		}
	}
}

// mixed returns some sectors of an old content and some of a new one.
func mixed(random *rand.Rand, old, new []byte) []byte {
	b := bytes.Clone(new)
	b = b[:len(old)+random.IntN((len(new)-len(old))/sector+1)*sector]
	for at := 0; at < len(old); at += sector {
		if random.IntN(2) == 0 {
			copy(b[at:at+sector], old[at:])
		}
	}
	return b
}

const sector = 512

// The tail of a transaction that was not confirmed may be missing. One that was confirmed is missed.
func TestCutLogLosesOnlyUnconfirmedWrites(t *testing.T) {
	seed := testmode.Seed(t)
	all, _ := images(t, seed, 40)
	dir := t.TempDir()
	accepted, refused := 0, 0
	for n := 1; n < len(all)-1; n++ {
		before, now := all[n-1], all[n]
		if !bytes.Equal(before.files["node.db-wal"][:32], now.files["node.db-wal"][:32]) {
			continue // the log began again
		}
		from, end, log := before.committed(t), now.committed(t), now.files["node.db-wal"]
		if n%8 > 0 && !testmode.Long() {
			continue
		}
		for cut := max(0, from-9000) / sector * sector; cut < end; cut += testmode.Pick(3, 1) * sector {
			what := fmt.Sprintf("write %d, its log of %d bytes cut at %d; write %d ended at %d", n+1, end, cut, n, from)
			for _, short := range [][]byte{log[:cut], append(slices.Clone(log[:cut]), make([]byte, end-cut)...)} {
				if bytes.Equal(short, log[:end]) {
					continue // it ends with zeros
				}
				intact := bytes.HasPrefix(short, log[:from]) // also if what is cut was zeros
				unconfirmed := now.with("node.db-wal", short).with("mark", before.files["mark"])
				if judge(t, dir, unconfirmed, before.state, what) != intact {
					_, err := unconfirmed.recovered(t, dir)
					t.Errorf("%s: error %v", what, err)
				}
				if judge(t, dir, now.with("node.db-wal", short), before.state, what) {
					t.Errorf("%s: accepted, though the mark names write %d", what, n+1)
				}
				if intact {
					accepted++
				} else {
					refused++
				}
			}
		}
	}
	if accepted == 0 || refused == 0 {
		t.Error("that proves nothing")
	}
}

// Every page of the database and every frame of its log is damaged in several ways. The node is
// refused, or the damage does no harm.
func TestDamagedPagesAreRefused(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	all, _ := images(t, seed, 60)
	closed, died := all[len(all)-1], all[len(all)-2]
	dir := t.TempDir()
	accepted, refused := 0, 0
	damage := func(i image, name string, at, size int) {
		old := i.files[name][at : at+size]
		for kind, b := range [][]byte{
			flipped(random, old), make([]byte, size), slices.Repeat([]byte{0xff}, size), flipped(random, flipped(random, old)),
		} {
			if bytes.Equal(b, old) {
				continue
			}
			content := bytes.Clone(i.files[name])
			copy(content[at:], b)
			what := fmt.Sprintf("%s, bytes from %d, damage %d", name, at, kind)
			if judge(t, dir, i.with(name, content), i.state, what) {
				accepted++
			} else {
				refused++
			}
		}
	}
	for at := 0; at+pageSize <= len(closed.files["node.db"]); at += pageSize {
		damage(closed, "node.db", at, pageSize)
	}
	for at := 32; at < died.committed(t); at += 24 + pageSize {
		damage(died, "node.db-wal", at, 24)
		damage(died, "node.db-wal", at+24, pageSize)
	}
	damage(died, "node.db-wal", 0, 32)
	damage(died, "mark", 0, len(died.files["mark"]))
	t.Logf("%d refused, %d without harm", refused, accepted)
	if refused < 20 {
		t.Error("that proves little: nearly all pages are unused")
	}
}

// After a loss of power the mark may be old. A frame that is wrong is no torn tail if a later
// transaction is behind it.
func TestDamagedLogIsNotATornTail(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	all, _ := images(t, seed, 40)
	old := dbfolder.Mark{Value: uint64(testNode.sum()), Boot: "another run"}
	dir := t.TempDir()
	tried := 0
	for n := 1; n < len(all)-1; n++ {
		before, now := all[n-1], all[n]
		from := before.committed(t)
		if !bytes.Equal(before.files["node.db-wal"][:32], now.files["node.db-wal"][:32]) || from <= 32 {
			continue // the log began again
		}
		const frame = 24 + pageSize
		at := 32 + random.IntN((from-32)/frame)*frame + 16 + random.IntN(frame-16)
		log := bytes.Clone(now.files["node.db-wal"][:now.committed(t)])
		log[at] ^= 1 << random.IntN(8)
		_, err := now.with("node.db-wal", log).with("mark", []byte(old.String())).recovered(t, dir)
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "node.db-wal is damaged") {
			t.Errorf("write %d, byte %d of its log: %v, want ErrLost that names the log", n+1, at, err)
		}
		tried++
	}
	if tried == 0 {
		t.Error("that proves nothing")
	}
}

func flipped(random *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	b[random.IntN(len(b))] ^= 1 << random.IntN(8)
	return b
}

// A disk may confirm a page and lose it, so that an older page is there. Its own sums are right.
func TestLostPagesAreRefused(t *testing.T) {
	seed := testmode.Seed(t)
	all, _ := images(t, seed, 60)
	closed := all[len(all)-1]
	dir := t.TempDir()
	refused := 0
	for n, old := range all[:len(all)-1] {
		if n%10 > 0 && !testmode.Long() {
			continue
		}
		whole := old.files["node.db"]
		for at := 0; at+pageSize <= min(len(whole), len(closed.files["node.db"])); at += pageSize {
			content := bytes.Clone(closed.files["node.db"])
			if copy(content[at:at+pageSize], whole[at:]); bytes.Equal(content, closed.files["node.db"]) {
				continue
			}
			what := fmt.Sprintf("page %d of write %d", at/pageSize+1, n+1)
			if !judge(t, dir, closed.with("node.db", content), closed.state, what) {
				refused++
			}
		}
	}
	t.Logf("%d refused", refused)
	if refused == 0 {
		t.Error("that proves nothing")
	}
}

// A file that is missing, older, or of another node is named, with what to do, and nothing changes.
func TestMissingAndForeignFilesAreRefused(t *testing.T) {
	all, _ := images(t, testmode.Seed(t), 40)
	closed, died, older := all[len(all)-1], all[len(all)-2], all[len(all)-20]
	otherDir := t.TempDir()
	if err := Create(otherDir, Identity{Cluster: "c0ffee", ID: 18, Name: "bob"}, newScript(0).state); err != nil {
		t.Fatal(err)
	}
	other := readFiles(t, otherDir)
	dir := t.TempDir()
	rebooted := dbfolder.Mark{Boot: "another run", Value: uint64(testNode.sum())}
	for name, c := range map[string]struct {
		files
		named string
	}{
		"no database":       {closed.with("node.db", nil), "node.db"},
		"an empty database": {closed.with("node.db", []byte{}), "node.db"},
		"no mark":           {closed.with("mark", nil), "mark"},
		"half a mark":       {closed.with("mark", closed.files["mark"][:20]), "mark"},
		"no log":            {died.with("node.db-wal", nil), "node.db-wal"},
		"no log after a loss of power": {died.with("node.db-wal", nil).with("mark", []byte(rebooted.String())),
			"node.db-wal"},
		"an empty log":                  {died.with("node.db-wal", []byte{}), "node.db"},
		"an older copy under its mark":  {older.with("mark", died.files["mark"]), "node.db"},
		"an older log":                  {died.with("node.db-wal", older.files["node.db-wal"]), "node.db"},
		"a database of another node":    {closed.with("node.db", other["node.db"]), "mark"},
		"a mark of another node":        {closed.with("mark", other["mark"]), "mark"},
		"another database with its log": {died.with("node.db", other["node.db"]), "node.db"},
		"a file of another kind":        {closed.with("node.db", []byte(strings.Repeat("text\n", 2000))), "node.db"},
	} {
		t.Run(name, func(t *testing.T) {
			at := c.put(t, dir)
			for range 2 { // the first must not make the second pass
				_, err := open(t.Context(), dir, Identity{}, options{moved: true})
				if !errors.Is(err, lockkeeper.ErrInvalid) || !errors.Is(err, ErrLost) ||
					!strings.Contains(err.Error(), filepath.Join(at.path, c.named)) {
					t.Errorf("%v, want ErrLost that names %s", err, c.named)
				}
			}
			for file, content := range readFiles(t, dir) {
				if !bytes.Equal(content, c.files[file]) {
					t.Errorf("%s is changed", file)
				}
			}
		})
	}
}
