package sqllock

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// statement is one prepared statement. All SQL but the schema is here.
type statement int

const (
	beginImmediate statement = iota
	beginDeferred
	commit
	rollback
	readMeta
	insertMeta
	updateMeta
	readSessions
	writeSession
	closeSession
	readClaims
	writeClaim
	readFreezes
	writeFreeze
	thawFreeze
	readPaces
	writePace
	forgetPace
	trimPaces
	oldestKnown
	purgeClaims
	purgeSessions
	purgeFreezes
	statements
)

var statementTexts = [statements]string{
	beginImmediate: "BEGIN IMMEDIATE",
	beginDeferred:  "BEGIN",
	commit:         "COMMIT",
	rollback:       "ROLLBACK",

	readMeta: `SELECT layout, version, purged, purge_ns, boot_id, base_ns, now_ns, fences, tickets, epochs, changes FROM meta`,
	insertMeta: `INSERT INTO meta (one, layout, version, purged, purge_ns, boot_id, base_ns, now_ns, fences, tickets, epochs, changes)
		VALUES (1, ?, 0, 0, 0, ?, ?, 0, 0, 0, 0, 0)`,
	updateMeta: `UPDATE meta SET version = ?, purged = ?, purge_ns = ?, boot_id = ?, base_ns = ?, now_ns = ?, fences = ?, tickets = ?, epochs = ?, changes = ?`,

	readSessions: `SELECT id, state, who, note, link, ttl_ns, deadline_ns, promise_ns, epoch, file, opened, version
		FROM sessions WHERE version > ? AND (? OR state <> 'closed')`,
	writeSession: `INSERT INTO sessions (id, state, who, note, link, ttl_ns, deadline_ns, promise_ns, epoch, file, opened, closed_ns, version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, who = excluded.who, note = excluded.note, link = excluded.link,
		ttl_ns = excluded.ttl_ns, deadline_ns = excluded.deadline_ns, promise_ns = excluded.promise_ns, epoch = excluded.epoch,
		file = excluded.file, opened = excluded.opened, closed_ns = 0, version = excluded.version`,
	closeSession: `UPDATE sessions SET state = 'closed', file = '', closed_ns = ?, version = ? WHERE id = ?`,

	readClaims: `SELECT session, id, state, targets, who, note, link, priority, ticket, fence, reason, arrived_ns, granted_ns,
		wait_ns, bound_ns, told_ns, ended_ns, forget_ns, ghost_ns, change, changed_ns, more, version FROM claims WHERE version > ?`,
	writeClaim: `INSERT OR REPLACE INTO claims (session, id, state, targets, who, note, link, priority, ticket, fence, reason, arrived_ns, granted_ns,
		wait_ns, bound_ns, told_ns, ended_ns, forget_ns, ghost_ns, change, changed_ns, more, version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,

	readFreezes: `SELECT path, state, session, claim, who, note, link, since_ns, until_ns, ended_ns FROM freezes WHERE version > ?`,
	writeFreeze: `INSERT OR REPLACE INTO freezes (path, state, session, claim, who, note, link, since_ns, until_ns, ended_ns, version)
		VALUES (?, 'frozen', ?, ?, ?, ?, ?, ?, ?, 0, ?)`,
	thawFreeze: `UPDATE freezes SET state = 'thawed', ended_ns = ?, version = ? WHERE path = ?`,

	readPaces: `SELECT path, pace_ns, at_ns FROM paces WHERE version > ?`,
	writePace: `INSERT INTO paces (path, pace_ns, at_ns, version) VALUES (?, ?, ?, ?)
		ON CONFLICT (path) DO UPDATE SET pace_ns = excluded.pace_ns, at_ns = excluded.at_ns, version = excluded.version`,
	forgetPace: `DELETE FROM paces WHERE path = ?`,
	trimPaces:  `DELETE FROM paces WHERE path IN (SELECT path FROM paces ORDER BY at_ns DESC, path DESC LIMIT -1 OFFSET ?)`,

	oldestKnown: `SELECT max(
		(SELECT coalesce(max(version), 0) FROM claims WHERE state = 'ended' AND max(forget_ns, ghost_ns) <= ?1 AND ended_ns <= ?2),
		(SELECT coalesce(max(version), 0) FROM sessions WHERE state = 'closed' AND closed_ns <= ?3),
		(SELECT coalesce(max(version), 0) FROM freezes WHERE state = 'thawed' AND ended_ns <= ?3))`,
	purgeClaims:   `DELETE FROM claims WHERE state = 'ended' AND max(forget_ns, ghost_ns) <= ?1 AND ended_ns <= ?2`,
	purgeSessions: `DELETE FROM sessions WHERE state = 'closed' AND closed_ns <= ?`,
	purgeFreezes:  `DELETE FROM freezes WHERE state = 'thawed' AND ended_ns <= ?`,
}

// meta is the one row of the table of that name.
type meta struct {
	layout   int // the version of the schema
	version  int64
	purged   int64
	purge    time.Duration
	boot     string
	base     time.Duration
	counters table.Counters
}

// meta reads the one row; in a file that was just made there is none.
func (db *database) meta() (m meta, found bool, err error) {
	c := &m.counters
	err = db.stmts[readMeta].QueryRowContext(context.Background()).Scan(&m.layout, &m.version, &m.purged, &m.purge, &m.boot, &m.base,
		&c.Now, signed{&c.Fences}, signed{&c.Tickets}, signed{&c.Epochs}, signed{&c.Changes})
	if err == sql.ErrNoRows {
		return m, false, nil
	}
	if err == nil && m.layout != db.schema.latest {
		err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
			"a newer program has brought %s to version %d, and this one knows version %d: restart it with the newer one", db.path, m.layout, db.schema.latest)}
	}
	return m, err == nil, err
}

func (db *database) writeMeta(m meta) error {
	c := m.counters
	return db.run(updateMeta, m.version, m.purged, int64(m.purge), m.boot, int64(m.base),
		int64(c.Now), int64(c.Fences), int64(c.Tickets), int64(c.Epochs), int64(c.Changes))
}

// sessionRow is a session with what only this engine knows of it.
type sessionRow struct {
	table.SessionRecord
	file    string
	opened  int64
	version int64
}

// claimRow is a claim with the version of its latest change, and, if its wait
// ended without a grant, with who stood in the way and how long it would have been.
type claimRow struct {
	table.ClaimRecord
	version  int64
	blockers []lockkeeper.Blocker
	place    int
	eta      time.Duration
}

// rows are rows that changed.
type rows struct {
	sessions []sessionRow
	claims   []claimRow
	freezes  []table.FreezeRecord
	paces    []table.PaceRecord
}

// changedSince reads the rows with a higher version; of version 0 all that are
// not closed.
func (db *database) changedSince(version int64) (rows, error) {
	var all rows
	err := db.each(readSessions, func(r *sql.Rows) error {
		row, err := scanSession(r)
		all.sessions = append(all.sessions, row)
		return err
	}, version, version > 0)
	if err != nil {
		return all, err
	}
	err = db.each(readClaims, func(r *sql.Rows) error {
		row, err := scanClaim(r)
		all.claims = append(all.claims, row)
		return err
	}, version)
	if err != nil {
		return all, err
	}
	err = db.each(readFreezes, func(r *sql.Rows) error {
		row, err := scanFreeze(r)
		all.freezes = append(all.freezes, row)
		return err
	}, version)
	if err != nil {
		return all, err
	}
	err = db.each(readPaces, func(r *sql.Rows) error {
		var row table.PaceRecord
		err := r.Scan(&row.Path, &row.Pace, &row.At)
		all.paces = append(all.paces, row)
		return err
	}, version)
	return all, err
}

func (db *database) each(s statement, do func(*sql.Rows) error, args ...any) error {
	r, err := db.stmts[s].QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := do(r); err != nil {
			return err
		}
	}
	return r.Err()
}

func scanSession(r *sql.Rows) (sessionRow, error) {
	var row sessionRow
	var state string
	err := r.Scan(&row.ID, &state, &row.Label.As, &row.Label.Note, &row.Label.Link, &row.TTL, endless{&row.Deadline},
		&row.Promise, signed{&row.Epoch}, &row.file, &row.opened, &row.version)
	row.Resumed, row.Closed = state == "open", state == "closed"
	if row.Closed {
		row.SessionRecord = table.SessionRecord{ID: row.ID, Closed: true}
	}
	return row, err
}

func (db *database) putSession(row sessionRow, now time.Duration) error {
	if row.Closed {
		return db.run(closeSession, int64(now), row.version, row.ID)
	}
	state := "open"
	if !row.Resumed {
		state = "resuming"
	}
	return db.run(writeSession, row.ID, state, row.Label.As, row.Label.Note, row.Label.Link, int64(row.TTL), end(row.Deadline),
		int64(row.Promise), int64(row.Epoch), row.file, row.opened, row.version)
}

// details is what few claims have: the column more.
type details struct {
	Revision    uint64                `json:"revision,omitempty"`
	Inside      lockkeeper.Ref        `json:"inside,omitzero"`
	Wants       []lockkeeper.Target   `json:"wants,omitempty"` // of a conversion, also after it was undone: a repetition must be known again (R16)
	Manners     lockkeeper.Manners    `json:"manners,omitempty"`
	Quiet       time.Duration         `json:"quiet_ns,omitempty"`
	Steal       lockkeeper.Steal      `json:"steal,omitempty"`
	After       time.Duration         `json:"after_ns,omitempty"`
	MaxHold     time.Duration         `json:"max_hold_ns,omitempty"`
	Grace       time.Duration         `json:"grace_ns,omitempty"`
	Lasts       time.Duration         `json:"lasts_ns,omitempty"`
	QuietSince  time.Duration         `json:"quiet_since_ns,omitempty"` // if not since it arrived
	Unconfirmed bool                  `json:"unconfirmed,omitempty"`
	Overdue     bool                  `json:"overdue,omitempty"`
	Asks        []table.AskRecord     `json:"asks,omitempty"`
	Operator    *table.OperatorRecord `json:"operator,omitempty"`
	Text        string                `json:"text,omitempty"`
	Thawed      bool                  `json:"thawed,omitempty"` // not a claim but a freeze, which has ended
	Blockers    []blockerRow          `json:"blockers,omitempty"`
	Place       int                   `json:"place,omitempty"`
	ETA         time.Duration         `json:"eta_ns,omitempty"`
}

// blockerRow is a blocker as a row has it: its durations are nanoseconds, as all
// others in the rows. (A type of its own has none of Blocker's methods.)
type blockerRow lockkeeper.Blocker

func (d *details) isZero() bool {
	return d.Revision == 0 && d.Inside == (lockkeeper.Ref{}) && len(d.Wants) == 0 && d.Manners == 0 && d.Quiet == 0 && d.Steal == 0 &&
		d.After == 0 && d.MaxHold == 0 && d.Grace == 0 && d.Lasts == 0 && d.QuietSince == 0 && !d.Unconfirmed && !d.Overdue &&
		len(d.Asks) == 0 && d.Operator == nil && d.Text == "" && !d.Thawed && len(d.Blockers) == 0 && d.Place == 0 && d.ETA == 0
}

func (db *database) putClaim(row claimRow) error {
	c := &row.ClaimRecord
	targets, err := json.Marshal(c.Grants)
	if err != nil {
		return err
	}
	d := details{
		Revision: c.Want.Revision, Inside: c.Want.Inside, Manners: c.Want.Manners, Quiet: c.Want.Quiet, Steal: c.Want.Steal,
		After: c.Want.After, MaxHold: c.Want.MaxHold, Grace: c.Want.Grace, Lasts: c.Want.Lasts, Unconfirmed: c.Unconfirmed,
		Overdue: c.Overdue, Asks: c.Asks, Operator: c.Operator, Text: c.Text, Thawed: c.Thawed,
		Place: row.place, ETA: row.eta,
	}
	for _, b := range row.blockers {
		d.Blockers = append(d.Blockers, blockerRow(b))
	}
	state := c.State.String()
	if c.Converting {
		state = "converting"
	}
	if c.State != lockkeeper.Ended && !slices.Equal(c.Want.Targets, held(c)) {
		d.Wants = c.Want.Targets
	}
	if c.State != lockkeeper.Ended && c.Quiet != c.Arrived {
		d.QuietSince = c.Quiet
	}
	var more []byte
	if !d.isZero() {
		if more, err = json.Marshal(d); err != nil {
			return err
		}
	}
	reason := ""
	if c.Reason != lockkeeper.NoReason {
		reason = c.Reason.String()
	}
	return db.run(writeClaim, c.Ref.Session, int64(c.Ref.ID), state, string(targets), c.Want.As, c.Want.Note, c.Want.Link,
		c.Want.Priority, int64(c.Ticket), int64(c.Fence), reason, int64(c.Arrived), int64(c.Granted), end(c.Want.Wait),
		end(c.Bound), end(c.Told), int64(c.Ended), int64(c.Forget), int64(c.Ghost), int64(c.Change), int64(c.Changed), string(more), row.version)
}

func scanClaim(r *sql.Rows) (claimRow, error) {
	var row claimRow
	c := &row.ClaimRecord
	var state, reason string
	var targets, more []byte
	err := r.Scan(&c.Ref.Session, signed{&c.Ref.ID}, &state, &targets, &c.Want.As, &c.Want.Note, &c.Want.Link,
		&c.Want.Priority, signed{&c.Ticket}, signed{&c.Fence}, &reason, &c.Arrived, &c.Granted, endless{&c.Want.Wait},
		endless{&c.Bound}, endless{&c.Told}, &c.Ended, &c.Forget, &c.Ghost, signed{&c.Change}, &c.Changed, &more, &row.version)
	if err != nil {
		return row, err
	}
	wrong := func(column string, err error) (claimRow, error) {
		return row, fmt.Errorf("claim %s, column %s: %w", c.Ref, column, err)
	}
	c.Want.ID = c.Ref.ID
	c.Converting = state == "converting"
	if c.Converting {
		state = "held"
	}
	if err := c.State.UnmarshalText([]byte(state)); err != nil {
		return wrong("state", err)
	}
	if reason != "" {
		if err := c.Reason.UnmarshalText([]byte(reason)); err != nil {
			return wrong("reason", err)
		}
	}
	if err := json.Unmarshal(targets, &c.Grants); err != nil {
		return wrong("targets", err)
	}
	var d details
	if len(more) > 0 {
		if err := json.Unmarshal(more, &d); err != nil {
			return wrong("more", err)
		}
	}
	fill(c, &d)
	row.place, row.eta = d.Place, d.ETA
	for _, b := range d.Blockers {
		row.blockers = append(row.blockers, lockkeeper.Blocker(b))
	}
	return row, nil
}

// fill is the reverse of what putClaim moves into details.
func fill(c *table.ClaimRecord, d *details) {
	w := &c.Want
	w.Revision, w.Inside, w.Manners, w.Quiet, w.Steal = d.Revision, d.Inside, d.Manners, d.Quiet, d.Steal
	w.After, w.MaxHold, w.Grace, w.Lasts = d.After, d.MaxHold, d.Grace, d.Lasts
	c.Unconfirmed, c.Overdue, c.Asks, c.Operator, c.Text = d.Unconfirmed, d.Overdue, d.Asks, d.Operator, d.Text
	if c.State == lockkeeper.Ended {
		c.Thawed = d.Thawed
		return
	}
	if c.Quiet = d.QuietSince; c.Quiet == 0 {
		c.Quiet = c.Arrived
	}
	if w.Targets = d.Wants; len(w.Targets) == 0 {
		w.Targets = held(c)
	}
}

// held are the targets of c as it has them, which are mostly those that it wants.
func held(c *table.ClaimRecord) []lockkeeper.Target {
	targets := make([]lockkeeper.Target, len(c.Grants))
	for i, g := range c.Grants {
		targets[i] = g.Target
	}
	return targets
}

func scanFreeze(r *sql.Rows) (table.FreezeRecord, error) {
	var f table.FreezeRecord
	var state string
	var ended time.Duration
	err := r.Scan(&f.Path, &state, &f.By.Session, signed{&f.By.ID}, &f.Label.As, &f.Label.Note, &f.Label.Link, &f.Since, &f.Until, &ended)
	if f.Ended = state == "thawed"; f.Ended {
		f.Until = min(f.Until, ended)
	}
	return f, err
}

func (db *database) putFreeze(f table.FreezeRecord, version int64, now time.Duration) error {
	if f.Ended {
		return db.run(thawFreeze, int64(now), version, string(f.Path))
	}
	return db.run(writeFreeze, string(f.Path), f.By.Session, int64(f.By.ID), f.Label.As, f.Label.Note, f.Label.Link,
		int64(f.Since), int64(f.Until), version)
}

func (db *database) putPace(p table.PaceRecord, version int64) error {
	if p.Forgotten {
		return db.run(forgetPace, string(p.Path))
	}
	return db.run(writePace, string(p.Path), int64(p.Pace), int64(p.At), version)
}

// purge removes ended claims that need not be remembered, and closed sessions
// and thawed freezes, each a while after its end, so that most processes have
// seen them so. It returns the highest version among them: who knows the rows up
// to it has missed nothing.
func (db *database) purge(now time.Duration) (version int64, err error) {
	if err := db.run(trimPaces, table.MaxPaces); err != nil { // processes may differ on which is the oldest
		return 0, err
	}
	ended, closed := int64(now-keepEnded), int64(now-keepClosed)
	if err := db.stmts[oldestKnown].QueryRowContext(context.Background(), int64(now), ended, closed).Scan(&version); err != nil || version == 0 {
		return version, err
	}
	if err := db.run(purgeClaims, int64(now), ended); err != nil {
		return 0, err
	}
	if err := db.run(purgeSessions, closed); err != nil {
		return 0, err
	}
	return version, db.run(purgeFreezes, closed)
}

// signed reads a number of 64 bits that SQLite knows as signed.
type signed struct{ to *uint64 }

// Scan implements sql.Scanner.
func (s signed) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T where a number should be", v)
	}
	*s.to = uint64(n)
	return nil
}

// endless reads an instant or a duration of which NULL is without end.
type endless struct{ to *time.Duration }

// Scan implements sql.Scanner.
func (e endless) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*e.to = lockkeeper.Forever
	case int64:
		*e.to = time.Duration(v)
	default:
		return fmt.Errorf("%T where an instant should be", v)
	}
	return nil
}

// end is the reverse of endless.
func end(d time.Duration) any {
	if d == lockkeeper.Forever {
		return nil
	}
	return int64(d)
}
