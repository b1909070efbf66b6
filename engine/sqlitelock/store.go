package sqlitelock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// statement is one prepared statement. All SQL except the schema is here.
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
	writeStated
	closeSession
	readClaims
	readNeeded
	writeClaim
	readFreezes
	writeFreeze
	thawFreeze
	readHoldTimes
	writeHoldTime
	forgetHoldTime
	trimHoldTimes
	oldestKnown
	purgeClaims
	purgeSessions
	purgeFreezes
	statements
)

// statementTexts are made when a file is opened: most starts of lk open none.
var statementTexts = sync.OnceValue(func() [statements]string {
	return [statements]string{
		beginImmediate: "BEGIN IMMEDIATE",
		beginDeferred:  "BEGIN",
		commit:         "COMMIT",
		rollback:       "ROLLBACK",

		readMeta: `SELECT layout, version, purged, purge_ns, boot_id, base_ns, now_ns, fences, tickets, epochs, changes
		FROM meta`,
		insertMeta: `INSERT INTO meta (one, layout, version, purged, purge_ns, boot_id, base_ns, now_ns, fences,
		tickets, epochs, changes)
		VALUES (1, ?, 0, 0, 0, ?, ?, 0, 0, 0, 0, 0)`,
		updateMeta: `UPDATE meta SET version = ?, purged = ?, purge_ns = ?, boot_id = ?,
		base_ns = ?, now_ns = ?, fences = ?, tickets = ?, epochs = ?, changes = ?`,

		readSessions: "SELECT " + rows.SessionColumns +
			", file, opened, version FROM sessions WHERE version > ? AND (? OR state <> 'closed')",
		writeSession: upsert("sessions", "id", rows.SessionColumns+", file, opened, closed_ns, version"),
		writeStated:  `UPDATE sessions SET acked = ?, lowest_open = ?, version = ? WHERE id = ?`,
		closeSession: `UPDATE sessions SET state = 'closed', file = '', closed_ns = ?, version = ? WHERE id = ?`,

		readClaims: "SELECT " + rows.ClaimColumns + ", version FROM claims WHERE version > ?",
		readNeeded: "SELECT " + rows.ClaimColumns + ", version FROM claims WHERE version > ? AND (state <> 'ended' " +
			"OR session IN (SELECT id FROM sessions WHERE state <> 'closed'))",
		writeClaim: replace("claims", rows.ClaimColumns+", version"),

		readFreezes: "SELECT " + rows.FreezeColumns + ", state, ended_ns, version FROM freezes WHERE version > ?",
		writeFreeze: replace("freezes", rows.FreezeColumns+", state, ended_ns, version"),
		thawFreeze:  `UPDATE freezes SET state = 'thawed', ended_ns = ?, version = ? WHERE path = ?`,

		readHoldTimes:  "SELECT " + rows.HoldTimeColumns + " FROM hold_times WHERE version > ?",
		writeHoldTime:  upsert("hold_times", "path", rows.HoldTimeColumns+", version"),
		forgetHoldTime: `DELETE FROM hold_times WHERE path = ?`,
		trimHoldTimes: `DELETE FROM hold_times WHERE path IN (SELECT path FROM hold_times
		ORDER BY at_ns DESC, path DESC LIMIT -1 OFFSET ?)`,

		oldestKnown: `SELECT max(
		(SELECT coalesce(max(version), 0) FROM claims WHERE state = 'ended' AND max(forget_ns, unacked_ns) <= ?1
		AND changed_ns <= ?2),
		(SELECT coalesce(max(version), 0) FROM sessions WHERE state = 'closed' AND closed_ns <= ?3),
		(SELECT coalesce(max(version), 0) FROM freezes WHERE state = 'thawed' AND ended_ns <= ?3))`,
		purgeClaims:   `DELETE FROM claims WHERE state = 'ended' AND max(forget_ns, unacked_ns) <= ?1 AND changed_ns <= ?2`,
		purgeSessions: `DELETE FROM sessions WHERE state = 'closed' AND closed_ns <= ?`,
		purgeFreezes:  `DELETE FROM freezes WHERE state = 'thawed' AND ended_ns <= ?`,
	}
})

// replace returns the statement that writes a row in place of the row with the same key.
func replace(name, columns string) string {
	return "INSERT OR REPLACE INTO " + name + values(columns)
}

// upsert is replace for rows that mostly exist, which is cheaper.
func upsert(name, key, columns string) string {
	var set []string
	for column := range strings.SplitSeq(columns, ", ") {
		if column != key {
			set = append(set, column+" = excluded."+column)
		}
	}
	return "INSERT INTO " + name + values(columns) + " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

func values(columns string) string {
	return " (" + columns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(columns, ",")) + ")"
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

// meta reads the one row; a new file has none.
func (db *database) meta() (m meta, found bool, err error) {
	c := &m.counters
	err = db.stmts[readMeta].QueryRowContext(context.Background()).Scan(&m.layout, &m.version, &m.purged, &m.purge,
		&m.boot, &m.base,
		&c.Now, rows.Signed{To: &c.Fences}, rows.Signed{To: &c.Tickets}, rows.Signed{To: &c.Epochs},
		rows.Signed{To: &c.Changes})
	if err == sql.ErrNoRows {
		return m, false, nil
	}
	if err == nil && m.layout != db.schema.Latest {
		err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
			"a newer program has brought %s to version %d, and this one knows version %d: restart it with the newer one",
			db.path, m.layout, db.schema.Latest)}
	}
	return m, err == nil, err
}

func (db *database) writeMeta(m meta) error {
	c := m.counters
	return db.run(updateMeta, m.version, m.purged, int64(m.purge), m.boot, int64(m.base),
		int64(c.Now), int64(c.Fences), int64(c.Tickets), int64(c.Epochs), int64(c.Changes))
}

// sessionRow is a row of sessions: the record, and the columns that only this engine has.
type sessionRow struct {
	table.SessionRecord
	file    string
	opened  int64
	version int64
}

// claimRow is a claim with the version of its latest change.
type claimRow struct {
	rows.Claim
	version int64
}

// freezeRow is a freeze with the version of its latest change.
type freezeRow struct {
	table.FreezeRecord
	version int64
}

// changes are rows that changed.
type changes struct {
	sessions  []sessionRow
	claims    []claimRow
	freezes   []freezeRow
	holdTimes []table.HoldTimeRecord
}

// changedSince reads the rows with a higher version; for version 0 all except closed sessions. Without
// ends it leaves out the ended claims of closed sessions: the table knows no such claims, and only
// watchers ask for them.
func (db *database) changedSince(version int64, ends bool) (changes, error) {
	var all changes
	claims := readClaims
	if !ends {
		claims = readNeeded
	}
	err := db.each(readSessions, func(r *sql.Rows) error {
		row, err := scanSession(r)
		all.sessions = append(all.sessions, row)
		return err
	}, version, version > 0)
	if err != nil {
		return all, err
	}
	err = db.each(claims, func(r *sql.Rows) error {
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
	err = db.each(readHoldTimes, func(r *sql.Rows) error {
		var row table.HoldTimeRecord
		err := r.Scan(&row.Path, &row.Estimate, &row.At)
		all.holdTimes = append(all.holdTimes, row)
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
	err := rows.ScanSession(&row.SessionRecord, r.Scan, &row.file, &row.opened, &row.version)
	if row.Closed {
		row.SessionRecord = table.SessionRecord{ID: row.ID, Closed: true}
	}
	return row, err
}

func (db *database) putSession(row sessionRow, now time.Duration) error {
	if row.Closed {
		return db.run(closeSession, int64(now), row.version, row.ID)
	}
	return db.run(writeSession, append(rows.SessionValues(&row.SessionRecord), row.file, row.opened, 0, row.version)...)
}

func scanClaim(r *sql.Rows) (claimRow, error) {
	var row claimRow
	err := row.Scan(r.Scan, &row.version)
	return row, err
}

func (db *database) putClaim(row claimRow) error {
	columns, err := row.Values()
	if err != nil {
		return err
	}
	return db.run(writeClaim, append(columns, row.version)...)
}

func scanFreeze(r *sql.Rows) (freezeRow, error) {
	var f freezeRow
	var state string
	var ended time.Duration
	err := rows.ScanFreeze(&f.FreezeRecord, r.Scan, &state, &ended, &f.version)
	if f.Ended = state == "thawed"; f.Ended {
		f.Until = min(f.Until, ended)
	}
	return f, err
}

func (db *database) putFreeze(f table.FreezeRecord, version int64, now time.Duration) error {
	if f.Ended {
		return db.run(thawFreeze, int64(now), version, string(f.Path))
	}
	return db.run(writeFreeze, append(rows.FreezeValues(&f), "frozen", 0, version)...)
}

func (db *database) putHoldTime(p table.HoldTimeRecord, version int64) error {
	if p.Forgotten {
		return db.run(forgetHoldTime, string(p.Path))
	}
	return db.run(writeHoldTime, string(p.Path), int64(p.Estimate), int64(p.At), version)
}

// purge removes ended claims that need not be remembered, and closed sessions and thawed freezes,
// each a while after its end was written, so that most processes have read them. It returns the
// highest version among them: a process that has read the rows up to it has missed nothing.
func (db *database) purge(now time.Duration) (version int64, err error) {
	if err := db.run(trimHoldTimes, table.MaxHoldTimes); err != nil { // processes may disagree about the oldest
		return 0, err
	}
	ended, closed := int64(now-keepEnded), int64(now-keepClosed)
	if err := db.stmts[oldestKnown].QueryRowContext(context.Background(), int64(now), ended,
		closed).Scan(&version); err != nil || version == 0 {
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
