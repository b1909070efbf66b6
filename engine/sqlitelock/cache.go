package sqlitelock

import (
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// cache is this process's copy of the rows. It is used only inside a
// transaction that has brought it up to date.
type cache struct {
	table    *table.Table
	version  int64                                    // of the rows
	sessions map[string]session                       // those that are open
	filed    int                                      // how many of them have a file
	paces    map[lockkeeper.Path]table.HoldTimeRecord // as the rows have them, so far as is known
}

// session is what this engine knows of an open session beside the table.
type session struct {
	epoch  uint64
	opened int64  // the version in which it began
	file   string // in the folder of session files; "" if it lives by its TTL alone
	row    table.SessionRecord
}

// loaded is what a cache learned from rows that other processes wrote.
type loaded struct {
	sessions []sessionRow
	live     []lockkeeper.Ref    // claims that changed and have not ended
	ended    []lockkeeper.Status // claims and freezes that ended
}

// errRows: the rows are not what any lockkeeper can have written.
var errRows = errors.New("its rows contradict each other")

// loadAll makes a cache of all rows.
func loadAll(db *database, m meta) (*cache, loaded, error) {
	all, err := db.changedSince(0)
	if err != nil && resultCode(err) == 0 {
		err = fmt.Errorf("%w: %w", errRows, err)
	}
	if err != nil {
		return nil, loaded{}, err
	}
	c := &cache{
		version:  m.version,
		sessions: make(map[string]session),
		paces:    make(map[lockkeeper.Path]table.HoldTimeRecord),
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

// loadNew brings c up to the rows that changed since its version.
func (c *cache) loadNew(db *database, m meta) (loaded, error) {
	fresh, err := db.changedSince(c.version)
	if err != nil {
		return loaded{}, err
	}
	// A session that ended and began again since then must be forgotten first:
	// its row shows only the new one.
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

// setSession notes what the table does not know of a session.
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

// setStated notes that a session has stated new numbers, and reports whether
// nothing else in its row is new. That is so with every release, and to write the
// whole row each time would cost a third of the release.
func (c *cache) setStated(record table.SessionRecord) bool {
	s, known := c.sessions[record.ID]
	s.row.Acked, s.row.LowestOpen = record.Acked, record.LowestOpen
	if !known || s.row != record {
		return false
	}
	c.sessions[record.ID] = s
	return true
}

// setPaces notes what the rows say. To know less costs no more than a write.
func (c *cache) setPaces(paces []table.HoldTimeRecord) {
	if len(c.paces) > 2*table.MaxHoldTimes {
		clear(c.paces)
	}
	for _, p := range paces {
		c.paces[p.Path] = p
	}
}

// writesPace reports whether p is to be written.
func (c *cache) writesPace(p table.HoldTimeRecord) bool {
	old, known := c.paces[p.Path]
	return !known || rows.HoldTimeMoved(&old, &p)
}

// sort makes of rows what the table has to load: first the past, sessions that
// are over and what ended with them, then the present. Rows of ended claims
// outlast their session, for people and for followers; loaded with the present
// they would be taken for claims of a session that has the same id since (R16).
func (c *cache) sort(m meta, all *changes) (past, present table.Snapshot, news loaded) {
	past.Counters, present.Counters = m.counters, m.counters
	c.setPaces(all.paces)
	present.Freezes, present.HoldTimes = all.freezes, all.paces
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
		if !row.Thawed { // of a freeze its own row tells
			news.ended = append(news.ended, row.EndedStatus(m.counters.Now))
		}
		if s, open := c.sessions[row.Ref.Session]; open && row.version > s.opened {
			present.Claims = append(present.Claims, row.ClaimRecord)
		} else {
			past.Claims = append(past.Claims, row.ClaimRecord)
		}
	}
	for _, f := range all.freezes {
		if f.Ended {
			news.ended = append(news.ended, rows.ThawedStatus(f.By, f.Path, lockkeeper.Released))
		}
	}
	return past, present, news
}
