package disklock

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// busyRow returns a row with entries of two sessions, and the table after it.
func busyRow(t *testing.T) (row, *table.Table) {
	t.Helper()
	tb := table.New()
	r := row{seq: 1}
	var batch record.Batch
	epochs := make(map[string]uint64)
	apply := func(c table.Command) {
		reply, err := tb.Step(&c)
		if err != nil {
			t.Fatal(err)
		}
		if c.Op == table.Attach {
			epochs[c.Session.ID] = reply.Lease.Key.Epoch
		}
		batch.Append(&c)
		r.count++
	}
	for _, id := range []string{"ann", "bob"} {
		apply(table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: id, TTL: time.Minute}})
	}
	for i, id := range []string{"ann", "ann", "bob", "bob", "ann"} {
		key := lockkeeper.Key{Session: id, Epoch: epochs[id], LowestOpen: 1}
		at := time.Duration(i) * time.Microsecond
		want := lockkeeper.Want{ID: uint64(i + 1), Wait: lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "db/hot", Mode: lockkeeper.ModeExclusive}}}
		apply(table.Command{At: at, Op: table.Claim, Key: key, Want: want})
		apply(table.Command{At: at, Op: table.End, Key: key,
			Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: want.ID}})
	}
	r.entries, r.after = batch.Bytes(), tb.Counters()
	r.sum = r.seal(0)
	return r, tb
}

// rowReader returns a function that replays a journal of one row.
func rowReader(t *testing.T) func(r row) (*recovered, error) {
	s := emptyStore(t, folder{path: t.TempDir()})
	h := header{number: 1, head: record.AppendHeader(nil, &table.Snapshot{})}
	if err := s.complete(&h); err != nil {
		t.Fatal(err)
	}
	return func(r row) (*recovered, error) {
		t.Helper()
		if err := errors.Join(s.Exec("DELETE FROM journal"), s.append(&r)); err != nil {
			t.Fatal(err)
		}
		got := &recovered{path: s.Path, writer: dbfolder.Writer()}
		return got, s.load(t.Context(), got)
	}
}

// TestDamagedRowIsRefused: a row whose entries end early anywhere or have one other byte, or one of
// whose numbers is another one, does not have its sum.
func TestDamagedRowIsRefused(t *testing.T) {
	random := testmode.Rand(t)
	whole, tb := busyRow(t)
	read := rowReader(t)
	got, err := read(whole)
	if err != nil || got.entries != whole.count || got.table.Counters() != tb.Counters() {
		t.Fatalf("the whole row: %v, %d entries of %d", err, got.entries, whole.count)
	}
	refused := func(r row, how string, at int) {
		t.Helper()
		if _, err := read(r); !errors.Is(err, dbfolder.ErrDamage) || !strings.Contains(err.Error(), "its sum is") {
			t.Errorf("%s %d: %v, want damage of its sum", how, at, err)
		}
	}
	for i := range whole.entries {
		r := whole
		r.entries = whole.entries[:i]
		refused(r, "cut at", i)
		r.entries = changed(whole.entries, i, random)
		refused(r, "with another byte", i)
	}
	for i, change := range []func(r *row){
		func(r *row) { r.count++ }, func(r *row) { r.after.Now++ }, func(r *row) { r.after.Fences++ },
		func(r *row) { r.after.Tickets++ }, func(r *row) { r.after.Epochs++ }, func(r *row) { r.after.Changes++ },
		func(r *row) { r.sum++ }, func(r *row) { r.sum = r.seal(1) },
	} {
		r := whole
		change(&r)
		refused(r, "with change", i)
	}
}

// TestSealedDamageIsNoPanic: entries with a byte missing or changed under a right sum, as a program
// with a bug would write them, are refused, or lead to a table with the counters that the row states.
func TestSealedDamageIsNoPanic(t *testing.T) {
	random := testmode.Rand(t)
	whole, tb := busyRow(t)
	read := rowReader(t)
	refused := 0
	for i := range whole.entries {
		for _, entries := range [][]byte{whole.entries[:i], changed(whole.entries, i, random)} {
			r := whole
			r.entries = entries
			r.sum = r.seal(0)
			got, err := read(r)
			switch {
			case err != nil:
				refused++
			case got.table.Counters() != tb.Counters() || len(entries) < len(whole.entries):
				t.Errorf("%x is replayed to %+v", entries, got.table.Counters())
			}
		}
	}
	if refused < len(whole.entries) {
		t.Errorf("only %d are refused", refused)
	}
}

// changed returns b with another byte at i.
func changed(b []byte, i int, random *rand.Rand) []byte {
	b = bytes.Clone(b)
	b[i] ^= byte(1 + random.IntN(255))
	return b
}
