package disklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// recovered is what a database says, after all of it was checked.
type recovered struct {
	table   *table.Table
	header  header // the snapshot that it began with
	seq     uint64 // the last row
	chain   uint64 // its sum
	entries int    // that were replayed
	state   string // as the last process left it: open or closed
}

// errDamage marks what says that something was lost or changed.
var errDamage = errors.New("damage")

func damagef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamage}, args...)...)
}

// recover checks the whole database, and replays it. It changes nothing.
func (s *store) recover(ctx context.Context) (*recovered, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if err := s.checkForm(); err != nil {
		return nil, err
	}
	r := &recovered{}
	if err := s.query("SELECT state FROM meta WHERE id = 1", &r.state); err != nil {
		return nil, damagef("table meta: %v", err)
	}
	if r.state != stateOpen && r.state != stateClosed {
		return nil, damagef("table meta: state %q is neither open nor closed", r.state)
	}
	var err error
	if r.header, err = s.latest(); err != nil {
		return nil, err
	}
	if r.table, err = s.restore(ctx, &r.header); err != nil {
		return nil, err
	}
	r.seq, r.chain = r.header.seq, r.header.chain
	return r, s.replay(ctx, r)
}

// replayed returns the table after the rows up to seq.
func (s *store) replayed(seq uint64) (*table.Table, error) {
	r, err := new(recovered), error(nil)
	if r.header, err = s.latest(); err != nil {
		return nil, err
	}
	ctx := context.Background()
	if r.table, err = s.restore(ctx, &r.header); err != nil {
		return nil, err
	}
	r.seq, r.chain = r.header.seq, r.header.chain
	if err = s.replay(ctx, r); err == nil && r.seq != seq {
		err = damagef("the last row is %d, it should be %d", r.seq, seq)
	}
	return r.table, err
}

const (
	stateOpen   = "open"
	stateClosed = "closed"
)

// check has SQLite check its own structures.
func (s *store) check(ctx context.Context) error {
	rows, err := s.conn.QueryContext(ctx, "PRAGMA quick_check(3)")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if line != "ok" {
			return damagef("SQLite finds: %s", line)
		}
	}
	return rows.Err()
}

// restore makes the table of a snapshot.
func (s *store) restore(ctx context.Context, h *header) (*table.Table, error) {
	snap := table.Snapshot{Counters: h.after}
	rows, err := s.conn.QueryContext(ctx, "SELECT position, kind, record FROM records WHERE number = ? ORDER BY position",
		int64(h.number))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	n, digest := 0, uint64(0)
	for ; rows.Next(); n++ {
		var position int
		var kind, record string
		if err := rows.Scan(&position, &kind, &record); err != nil {
			return nil, damagef("table records, snapshot %d, position %d: %v", h.number, n, err)
		}
		if position != n {
			return nil, damagef("table records, snapshot %d: position %d is missing", h.number, n)
		}
		digest = digestOf(digest, kind, record)
		if err := addRecord(&snap, kind, record); err != nil {
			return nil, damagef("table records, snapshot %d, position %d: %v", h.number, n, err)
		}
	}
	switch {
	case rows.Err() != nil:
		return nil, rows.Err()
	case n != h.records:
		return nil, damagef("table records, snapshot %d has %d records, it should have %d", h.number, n, h.records)
	case digest != h.digest:
		return nil, damagef("table records, snapshot %d: the digest of its records is %s, it should be %s", h.number,
			hex(digest), hex(h.digest))
	}
	t, err := table.Restore(snap)
	if err != nil {
		return nil, damagef("snapshot %d: %v", h.number, err)
	}
	return t, nil
}

// replay applies the rows behind the snapshot. Each must have its sum, and bring
// the table to the counters that it states.
func (s *store) replay(ctx context.Context, r *recovered) error {
	rows, err := s.conn.QueryContext(ctx,
		"SELECT seq, count, entries, now_ns, fences, tickets, epochs, changes, sum FROM journal WHERE seq > ? ORDER BY seq",
		int64(r.header.seq))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var b row
		var sum string
		to := append([]any{&b.seq, &b.count, &b.entries}, scanCounters(&b.after)...)
		if err := rows.Scan(append(to, &sum)...); err != nil {
			return damagef("table journal, row %d: %v", r.seq+1, err)
		}
		if b.seq != r.seq+1 {
			return damagef("table journal: row %d is missing, the next one is %d", r.seq+1, b.seq)
		}
		b.sum = b.seal(r.chain)
		if hex(b.sum) != sum {
			return damagef("table journal, row %d: its sum is %s, by its contents and those before it should be %s", b.seq, sum,
				hex(b.sum))
		}
		if err := r.apply(&b); err != nil {
			return err
		}
		r.seq, r.chain = b.seq, b.sum
	}
	return rows.Err()
}

// apply replays one row.
func (r *recovered) apply(b *row) error {
	commands, err := decodeCommands(b.entries)
	if err != nil {
		return damagef("table journal, row %d: %v", b.seq, err)
	}
	if len(commands) != b.count {
		return damagef("table journal, row %d has %d entries, it should have %d", b.seq, len(commands), b.count)
	}
	for i := range commands {
		if _, err := r.table.Step(&commands[i]); err != nil {
			return damagef("table journal, row %d, entry %d is refused (%v), though it was not when it was written: was it "+
				"by another version of this program?", b.seq, i+1, err)
		}
	}
	if after := r.table.Counters(); after != b.after {
		return damagef("table journal, row %d: after it the table's counters are %+v, they should be %+v: was it written "+
			"by another version of this program?", b.seq, after, b.after)
	}
	r.entries += len(commands)
	return nil
}

// settle makes the words of an error of a file that can't be used.
func refusal(path string, err error) error {
	var told *lockkeeper.Error
	if errors.As(err, &told) {
		return told
	}
	if errors.Is(err, errDamage) {
		return lockkeeper.Invalid("%s: %v: nothing was changed; see docs/engines/disk.md for what can be done", path, err)
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: words(path, err), Cause: err}
}
