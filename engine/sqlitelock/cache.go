package sqlitelock

import (
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// cache is the copy of the rows in this process. A transaction brings it up to date before it uses
// it.
type cache struct {
	table     *table.Table
	version   int64                                    // of the rows
	sessions  map[string]session                       // the open ones
	filed     int                                      // how many of them have session files
	holdTimes map[lockkeeper.Path]table.HoldTimeRecord // as in the rows, as far as known
}

// session is what the engine knows of an open session beside the table.
type session struct {
	epoch  uint64
	opened int64  // the version that began it
	file   string // in the folder of session files; "" if it lives by its TTL alone
	row    table.SessionRecord
}

// loaded lists the changes in rows that other processes wrote.
type loaded struct {
	sessions []sessionRow
	live     []lockkeeper.Ref // claims that changed and have not ended
	ended    []endedRow       // claims and freezes that ended
}

// endedRow is the status of an ended claim or freeze, and the version of its row.
type endedRow struct {
	lockkeeper.Status
	version int64
}

// errRows: no version of lockkeeper can have written these rows.
var errRows = errors.New("its rows contradict each other")

// loadAll makes a cache of all rows; see changedSince for ends.
func loadAll(db *database, m meta, ends bool) (*cache, loaded, error) {
	all, err := db.changedSince(0, ends)
	if err != nil && resultCode(err) == 0 {
		err = fmt.Errorf("%w: %w", errRows, err)
	}
	if err != nil {
		return nil, loaded{}, err
	}
	c := &cache{
		version:   m.version,
		sessions:  make(map[string]session),
		holdTimes: make(map[lockkeeper.Path]table.HoldTimeRecord),
	}
	for i := range all.sessions {
		c.setSession(&all.sessions[i])
	}
	_, present, news := c.sort(m, &all)
	t, err := table.Restore(present)
	if err != nil {
		return nil, loaded{}, fmt.Errorf("%w: %w", errRows, err)
	}
	c.table = t
	t.Track()
	return c, news, nil
}

// loadNew updates c with the rows that changed since its version.
func (c *cache) loadNew(db *database, m meta) (loaded, error) {
	fresh, err := db.changedSince(c.version, true)
	if err != nil {
		return loaded{}, err
	}
	// A session that ended and began again since then must be removed first: its row shows only
	// the new session.
	var again []table.SessionRecord
	for i := range fresh.sessions {
		row := &fresh.sessions[i]
		if old, known := c.sessions[row.ID]; known && !row.Closed && row.opened != old.opened {
			again = append(again, table.SessionRecord{ID: row.ID, Closed: true})
		}
		c.setSession(row)
	}
	past, present, news := c.sort(m, &fresh)
	past.Sessions = append(past.Sessions, again...)
	if len(past.Sessions)+len(past.Claims) > 0 {
		if err := c.table.Load(past); err != nil {
			return loaded{}, err
		}
	}
	if err := c.table.Load(present); err != nil {
		return loaded{}, err
	}
	c.version = m.version
	return news, nil
}

// setSession records what the table does not know of a session.
func (c *cache) setSession(row *sessionRow) {
	if old, known := c.sessions[row.ID]; known && old.file != "" {
		c.filed--
	}
	if row.Closed {
		delete(c.sessions, row.ID)
		return
	}
	c.sessions[row.ID] = session{epoch: row.Epoch, opened: row.opened, file: row.file, row: row.SessionRecord}
	if row.file != "" {
		c.filed++
	}
}

// setStated records new acknowledgements of a session, and reports whether nothing else in its row
// is new. That is so with every release, and writing the whole row would cost a third of it.
func (c *cache) setStated(record table.SessionRecord) bool {
	s, known := c.sessions[record.ID]
	s.row.Acked, s.row.LowestOpen = record.Acked, record.LowestOpen
	if !known || s.row != record {
		return false
	}
	c.sessions[record.ID] = s
	return true
}

// setHoldTimes records hold times as their rows have them. If it forgets a row, the next release
// only writes that row again.
func (c *cache) setHoldTimes(holdTimes []table.HoldTimeRecord) {
	if len(c.holdTimes) > 2*table.MaxHoldTimes {
		clear(c.holdTimes)
	}
	for _, p := range holdTimes {
		c.holdTimes[p.Path] = p
	}
}

// mustWrite reports whether the row of p must be written.
func (c *cache) mustWrite(p table.HoldTimeRecord) bool {
	old, known := c.holdTimes[p.Path]
	return !known || rows.HoldTimeMoved(&old, &p)
}

// sort splits rows into two snapshots for the table. The past has ended sessions and the claims
// that ended with them, and is loaded first; all other rows are the present. Rows of ended claims
// outlast their session, for people and watchers: loaded with the present they would belong to a
// new session with the same id (R16).
func (c *cache) sort(m meta, all *changes) (past, present table.Snapshot, news loaded) {
	past.Counters, present.Counters = m.counters, m.counters
	c.setHoldTimes(all.holdTimes)
	present.HoldTimes = all.holdTimes
	news.sessions = all.sessions
	for i := range all.sessions {
		if record := all.sessions[i].SessionRecord; record.Closed {
			past.Sessions = append(past.Sessions, record)
		} else {
			present.Sessions = append(present.Sessions, record)
		}
	}
	for i := range all.claims {
		row := &all.claims[i]
		if row.ClaimRecord.State != lockkeeper.Ended {
			news.live = append(news.live, row.Ref)
			present.Claims = append(present.Claims, row.ClaimRecord)
			continue
		}
		if !row.Thawed { // the row of the freeze says the same
			news.ended = append(news.ended, endedRow{row.EndedStatus(m.counters.Now), row.version})
		}
		if s, open := c.sessions[row.Ref.Session]; open && row.version > s.opened {
			present.Claims = append(present.Claims, row.ClaimRecord)
		} else {
			past.Claims = append(past.Claims, row.ClaimRecord)
		}
	}
	for _, f := range all.freezes {
		present.Freezes = append(present.Freezes, f.FreezeRecord)
		if f.Ended {
			news.ended = append(news.ended, endedRow{rows.ThawedStatus(f.By, f.Path, lockkeeper.Released), f.version})
		}
	}
	return past, present, news
}
