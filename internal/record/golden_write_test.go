package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// writeGolden writes batches and a snapshot in which there is something of every rule, and batches
// and records with all fields.
func writeGolden(t *testing.T) {
	if _, err := os.Stat(goldenFile); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is there: raise Form or table.RulesVersion; only if no release has had these versions, remove it",
			goldenFile)
	}
	var out bytes.Buffer
	for _, c := range fullCommands() {
		fmt.Fprintf(&out, "all-fields-batch %x\n", batchOf(c, c))
	}
	full := fullSnapshot()
	for i := range Records(&full) {
		fmt.Fprintf(&out, "all-fields-record %x\n", AppendRecord(nil, &full, i))
	}
	tb := table.New()
	all := append(randomCommands(t, tb, 800), scenesWithTexts(t, tb)...)
	for batch := range slices.Chunk(all, 8) {
		fmt.Fprintf(&out, "batch %x\n", batchOf(batch...))
	}
	for i, b := range whole(tb) {
		kind := "record"
		if i == 0 {
			kind = "header"
		}
		fmt.Fprintf(&out, "%s %x\n", kind, b)
	}
	if err := os.MkdirAll(filepath.Dir(goldenFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// randomCommands returns n commands after their steps in tb.
func randomCommands(t *testing.T, tb *table.Table, n int) (all []table.Command) {
	g := &user{Rand: rand.New(rand.NewPCG(1, 1)), epochs: map[string]uint64{}, last: map[string]uint64{}}
	for range n {
		c := g.command(tb.Now())
		reply, err := tb.Step(&c)
		if err != nil { // what its key states counts nevertheless
			c = table.Command{At: c.At, Op: table.Pass, Key: c.Key}
			if _, err := tb.Step(&c); err != nil {
				t.Fatal(err)
			}
		}
		if c.Op == table.Attach && err == nil {
			g.epochs[c.Session.ID] = reply.Lease.Key.Epoch
		}
		all = append(all, c)
	}
	return all
}

// scenesWithTexts returns commands, after their steps in tb, that end claims with the texts which the
// rules make. Such a text is state, and so are its words: nodes of a cluster compare them. The deadlock
// has two rings, of which the text names one.
func scenesWithTexts(t *testing.T, tb *table.Table) (all []table.Command) {
	epochs := map[string]uint64{}
	step := func(c table.Command) lockkeeper.Status {
		c.At = tb.Now()
		reply, err := tb.Step(&c)
		if err != nil {
			t.Fatal(err)
		}
		if c.Op == table.Attach {
			epochs[c.Session.ID] = reply.Lease.Key.Epoch
		}
		all = append(all, c)
		return reply.Status
	}
	claim := func(session string, id uint64, path lockkeeper.Path, change func(*lockkeeper.Want)) lockkeeper.Status {
		w := lockkeeper.Want{ID: id, Wait: time.Minute, Targets: []lockkeeper.Target{{
			Path: path, Mode: lockkeeper.ModeExclusive,
		}}}
		if id > 1 {
			w.Inside = lockkeeper.Ref{Session: session, ID: 1}
		}
		if change != nil {
			change(&w)
		}
		return step(table.Command{Op: table.Claim, Key: lockkeeper.Key{Session: session, Epoch: epochs[session]}, Want: w})
	}
	shared := func(w *lockkeeper.Want) { w.Targets[0].Mode = lockkeeper.ModeShared }
	for _, id := range []string{"ann", "bob", "cem", "dan", "eve", "fay"} {
		step(table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: id, TTL: time.Minute}})
	}
	claim("ann", 1, "ring/ann", nil)
	claim("bob", 1, "ring/bob", nil)
	claim("cem", 1, "ring/both", shared)
	claim("dan", 1, "ring/both", shared)
	claim("dan", 2, "ring/ann", nil)
	claim("cem", 2, "ring/ann", nil)
	claim("bob", 2, "ring/both", nil)
	deadlock := claim("ann", 2, "ring/bob", nil)
	claim("eve", 1, "long", func(w *lockkeeper.Want) { w.Expected = time.Hour })
	hopeless := claim("fay", 1, "long", nil)
	if deadlock.Reason != lockkeeper.Deadlock || hopeless.Reason != lockkeeper.TimedOut {
		t.Fatalf("the claims ended by %q and %q", deadlock.Reason, hopeless.Reason)
	}
	return all
}
