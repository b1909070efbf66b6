package disklock

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

var rewrite = flag.Bool("rewrite", false,
	"write the golden journal anew, if journals of before need not be read any more")

const goldenFile = "testdata/journal-1.txt"

// goldenRow is a row of the journal as a line of JSON.
type goldenRow struct {
	Seq     uint64          `json:"seq"`
	After   table.Counters  `json:"after"`
	Sum     string          `json:"sum"`
	Entries json.RawMessage `json:"entries"`
}

// TestGoldenJournal: a journal that an earlier version has written is replayed to the
// same table, and its snapshot is restored to it. If a change of the rules makes this fail,
// journals that are in use can't
// be opened by the new version: see docs/engines/disk.md, Versions.
func TestGoldenJournal(t *testing.T) {
	if *rewrite {
		writeGolden(t)
	}
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	f := folder{path: t.TempDir()}
	s := emptyStore(t, f)
	var snap table.Snapshot
	for _, line := range lines[:len(lines)-1] {
		if kind, record, found := bytes.Cut(line, []byte(" {")); found {
			if err := addRecord(&snap, string(kind), "{"+string(record)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var g goldenRow
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		var entries []json.RawMessage
		if err := json.Unmarshal(g.Entries, &entries); err != nil {
			t.Fatal(err)
		}
		sum, err := unhex(g.Sum)
		if err == nil {
			err = s.append(&row{seq: g.Seq, count: len(entries), entries: g.Entries, after: g.After, sum: sum})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.recover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := digestOfTable(t, r.table); got != string(lines[len(lines)-1]) {
		t.Errorf("the table is replayed to %s, want %s", got, lines[len(lines)-1])
	}
	snap.Counters = r.table.Counters()
	restored, err := table.Restore(snap)
	if err != nil {
		t.Fatal(err)
	}
	if got := digestOfTable(t, restored); got != string(lines[len(lines)-1]) {
		t.Errorf("the table is restored to %s, want %s", got, lines[len(lines)-1])
	}
}

// emptyStore makes the database of a folder.
func emptyStore(t *testing.T, f folder) *store {
	t.Helper()
	s, err := openStore(f.journal(), "sqlite", false, true)
	if err == nil {
		err = s.create()
	}
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

// digestOfTable is the table in one line.
func digestOfTable(t *testing.T, tb *table.Table) string {
	snap := tb.Snapshot()
	digest := uint64(0)
	for i := range size(&snap) {
		kind, record := recordAt(&snap, i)
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		digest = digestOf(digest, kind, string(text))
	}
	return fmt.Sprintf("%d sessions, %d claims, %d freezes, %d paces, digest %s",
		len(snap.Sessions), len(snap.Claims), len(snap.Freezes), len(snap.HoldTimes), hex(digest))
}

// writeGolden makes up a journal in which there is something of every rule.
func writeGolden(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	tb := table.New()
	g := &golden{random: random, epochs: map[string]uint64{}, last: map[string]uint64{}}
	var out bytes.Buffer
	chain := uint64(0)
	for seq := uint64(1); seq <= 150; seq++ {
		r := row{seq: seq, entries: []byte{'['}}
		for range 1 + random.IntN(12) {
			c := g.command(tb.Now())
			reply, err := tb.Step(&c)
			if err != nil { // what its key states was heeded
				c = table.Command{At: c.At, Op: table.Pass, Key: c.Key}
				if _, err := tb.Step(&c); err != nil {
					t.Fatal(err)
				}
			}
			if c.Op == table.Attach && err == nil {
				g.epochs[c.Session.ID] = reply.Lease.Key.Epoch
			}
			if r.count > 0 {
				r.entries = append(r.entries, ',')
			}
			r.entries = appendCommand(r.entries, &c)
			r.count++
		}
		r.entries = append(r.entries, ']')
		pass := table.Command{At: tb.Now(), Op: table.Pass}
		r.entries = append(appendCommand(append(r.entries[:len(r.entries)-1], comma(r.count)...), &pass), ']')
		r.count++
		r.after = tb.Counters()
		r.sum = r.seal(chain)
		chain = r.sum
		line, err := json.Marshal(goldenRow{seq, r.after, hex(r.sum), json.RawMessage(r.entries)})
		if err != nil || !bytes.Contains(line, r.entries) {
			t.Fatalf("%s %v", line, err)
		}
		out.Write(append(line, '\n'))
	}
	snap := tb.Snapshot()
	for i := range size(&snap) {
		kind, record := recordAt(&snap, i)
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s\n", kind, text)
	}
	out.WriteString(digestOfTable(t, tb) + "\n")
	if err := os.MkdirAll(filepath.Dir(goldenFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func comma(n int) string {
	if n == 0 {
		return ""
	}
	return ","
}

// golden makes up commands.
type golden struct {
	random *rand.Rand
	epochs map[string]uint64
	last   map[string]uint64
}

func (g *golden) command(now time.Duration) table.Command {
	r := g.random
	id := fmt.Sprint("s", 1+r.IntN(5))
	c := table.Command{At: now + time.Duration(r.IntN(150))*time.Millisecond, Key: lockkeeper.Key{
		Session:    id,
		Epoch:      g.epochs[id],
		LowestOpen: g.last[id] - min(g.last[id], r.Uint64N(9)),
		Acked:      r.Uint64N(9),
	}}
	ref := lockkeeper.Ref{Session: fmt.Sprint("s", 1+r.IntN(5)), ID: g.last[id] - min(g.last[id], r.Uint64N(4))}
	switch p := r.IntN(200); {
	case p < 8 || c.Key.Epoch == 0:
		c.Op = table.Attach
		c.Session = lockkeeper.Session{
			ID:    id,
			TTL:   time.Duration(2+r.IntN(20)) * time.Second,
			Epoch: c.Key.Epoch,
			Label: lockkeeper.Label{As: "golden"},
		}
		for n := g.last[id]; n > 0 && n+4 > g.last[id]; n-- {
			c.Session.Named = append(c.Session.Named, n)
		}
	case p < 25:
		c.Op = table.Renew
	case p < 26:
		c.Op = table.Restart
	case p < 28:
		c.Op = table.Gone
	case p < 80:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Release,
			ID: g.last[id] - min(g.last[id], r.Uint64N(5))}
	case p < 95:
		c.Op, c.Ending = table.End, lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   ref,
			Force: r.IntN(2) == 0,
			Label: lockkeeper.Label{Note: `"why"`},
		}
	case p < 105:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db/a"}
	case p < 107:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Leave}
	default:
		g.last[id]++
		c.Op, c.Want = table.Claim, g.want(g.last[id], ref)
	}
	return c
}

func (g *golden) want(id uint64, other lockkeeper.Ref) lockkeeper.Want {
	r := g.random
	w := lockkeeper.Want{
		ID:       id,
		Priority: r.IntN(4) - 1,
		Wait:     []time.Duration{0, 3 * time.Second, lockkeeper.Forever}[r.IntN(3)],
		Label:    lockkeeper.Label{Note: "grüße"},
	}
	for _, path := range []lockkeeper.Path{"db", "db/a", "db/b", "x"} {
		if r.IntN(3) != 0 {
			continue
		}
		target := lockkeeper.Target{Path: path, Mode: lockkeeper.Mode(1 + r.IntN(3))}
		if target.Mode == lockkeeper.ModePermits {
			target.Limit = 1 + r.IntN(4)
			target.Units = 1 + r.IntN(target.Limit)
		}
		w.Targets = append(w.Targets, target)
	}
	switch r.IntN(10) {
	case 0:
		w.WriterPolicy, w.Quiet = lockkeeper.Soft, time.Second
	case 1, 2:
		w.Steal = lockkeeper.Ask
	case 3:
		w.Steal, w.After = lockkeeper.Take, 2*time.Second
	case 4:
		w.MaxHold, w.Grace = 3*time.Second, time.Second
	case 5:
		w.Expected = 4 * time.Second
	case 6:
		w.Inside = other
	case 7:
		w = lockkeeper.Want{
			ID:      id,
			Freeze:  5 * time.Second,
			Targets: []lockkeeper.Target{{Path: "db/a", Mode: lockkeeper.ModeExclusive}},
		}
	case 8:
		w.Revision, w.ID = 1, max(1, id-1)
		w.Targets = []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}}
	}
	return w
}
