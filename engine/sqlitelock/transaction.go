package sqlitelock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// How long what has ended is kept, and how often it is looked for.
const (
	keepEnded  = time.Minute      // claims, or longer if the table remembers them
	keepClosed = 10 * time.Minute // sessions and freezes
	purgeEvery = time.Minute
)

// transaction is one transaction of the file: commands are applied to the table
// and their changes written, all of them or none.
//
// It is a writer from its begin on, so between its reading of the rows and its
// commit nobody else changes them. Nothing that it finds out may be told before
// the commit.
type transaction struct {
	e       *Engine
	meta    meta
	found   bool          // the meta row is there
	now     time.Duration // the engine's time, read inside
	writes  bool          // it may change rows
	wanted  func() error  // see Engine.wanted
	latest  uint64        // the latest job when it began
	changed bool          // it has
	broken  error         // what went wrong with a write; then it must not commit

	heard news     // of what other processes committed
	news  news     // of its own steps, for when it is committed
	rings []string // files of sessions of other processes that are concerned
	gone  []string // files of sessions that ended

	stated map[string]table.SessionRecord // what sessions stated, to be written once at the end
	after  []func()                       // to be done when it is committed
}

// refresh brings the cache up to the rows, and reads the time.
func (tx *transaction) refresh() error {
	e, m := tx.e, tx.meta
	reading, err := e.clock()
	if err != nil {
		return err
	}
	if !tx.found { // the file was just made
		m.boot, m.base = e.boot, reading
		if tx.writes {
			if err := e.db.run(insertMeta, e.db.schema.Latest, m.boot, int64(m.base)); err != nil {
				return err
			}
			tx.changed = true
		}
	}
	tx.meta = m
	if err := tx.load(); err != nil {
		return err
	}
	// Should the clock read less than it did at the latest entry, as in a
	// sandbox that shows another one, the engine's time stands still until it
	// has caught up: the table never lets time go back (R20).
	tx.now = max(reading-m.base, m.counters.Now)
	e.base = m.base
	return nil
}

// load brings the cache up to the version in meta. Whatever is odd about the
// cache, all rows are read anew.
func (tx *transaction) load() error {
	e, m := tx.e, tx.meta
	if c := e.cache; c != nil && c.version == m.version {
		return nil
	} else if c != nil && c.version >= m.purged && c.version < m.version {
		news, err := c.loadNew(e.db, m)
		if err == nil {
			tx.learn(news)
			return nil
		}
		if resultCode(err) != 0 {
			return err // not the cache is odd, but the database
		}
	}
	e.cache = nil
	c, news, err := loadAll(e.db, m)
	if err != nil {
		return err
	}
	e.cache = c
	tx.relearn(news)
	return nil
}

// learn prepares the news about what other processes changed. They are true
// already, and told whatever becomes of this transaction.
func (tx *transaction) learn(l loaded) {
	e := tx.e
	for i := range l.sessions {
		row := &l.sessions[i]
		if a := e.local.Get(row.ID); a != nil && (row.Closed || a.Epoch != 0 && row.Epoch != a.Epoch) {
			// Its notify hears of the claims that ended with it, and no more.
			for _, st := range l.ended {
				if st.Ref.Session == row.ID {
					tx.heard.add(a.Notify, st)
				}
			}
			e.detach(row.ID)
		}
	}
	for _, ref := range l.live {
		if e.local.Get(ref.Session) != nil {
			if st, ok := e.cache.table.Status(ref); ok {
				tx.hear(st)
			}
		}
	}
	for _, st := range l.ended {
		tx.hear(st)
		if !e.view.recorded(st.Ref) {
			tx.heard.ended = append(tx.heard.ended, st)
		}
	}
	tx.heard.any, tx.heard.anything = true, true
}

// relearn prepares the news about everything, after all rows were read anew.
func (tx *transaction) relearn(l loaded) {
	e := tx.e
	clear(e.waits)
	clear(e.bounds)
	for id, a := range e.local.All() {
		s, open := e.cache.sessions[id]
		if !open && a.Epoch != 0 || open && a.Epoch != 0 && s.epoch != a.Epoch {
			e.detach(id)
			continue
		}
		for st := range e.cache.table.List(lockkeeper.Query{Session: id}) {
			if st.State != lockkeeper.Freezing {
				tx.hear(st)
			}
		}
	}
	for _, st := range l.ended {
		tx.hear(st)
	}
	tx.heard.any, tx.heard.anything = true, true
}

// hear prepares to notify a session of this process.
func (tx *transaction) hear(st lockkeeper.Status) {
	if a := tx.e.local.Get(st.Ref.Session); a != nil {
		tx.heard.add(a.Notify, st)
	}
}

// step applies one command and writes what it changed. Its answer may be given
// only after the commit.
func (tx *transaction) step(c table.Command) (table.Reply, error) {
	return tx.stepWith(c, "")
}

// stepWith is step, for an Attach of a session that has that file.
func (tx *transaction) stepWith(c table.Command, file string) (table.Reply, error) {
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	t := tx.e.cache.table
	c.At = tx.now
	reply, err := t.Step(&c)
	tx.collect(t)
	tx.write(t.Changes(), attachedFile{c.Session.ID, file})
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	return reply, err
}

// attachedFile is the session that a step attaches, and its file; no id: it attaches none.
type attachedFile struct{ id, file string }

// collect prepares the news of a step.
func (tx *transaction) collect(t *table.Table) {
	e := tx.e
	follows := e.followed() > 0 // who begins to follow after that looks after this transaction
	for _, ev := range t.Events() {
		tx.news.any = true
		if ev.Path != "" {
			st := rows.ThawedStatus(ev.Ref, ev.Path, ev.Reason)
			if ev.Kind == table.Thawed {
				tx.news.ended = append(tx.news.ended, st)
			}
			tx.news.changed = append(tx.news.changed, st)
			continue
		}
		st, ok := t.Status(ev.Ref)
		if !ok {
			continue
		}
		if st.State == lockkeeper.Ended {
			tx.news.ended = append(tx.news.ended, st)
		} else if follows {
			tx.news.changed = append(tx.news.changed, st)
		}
		if a := e.local.Get(ev.Ref.Session); a != nil {
			tx.news.add(a.Notify, st)
		} else if s := e.cache.sessions[ev.Ref.Session]; s.file != "" && ev.Kind != table.Queued {
			tx.ring(s.file)
		}
	}
}

func (tx *transaction) ring(file string) {
	for _, f := range tx.rings {
		if f == file {
			return
		}
	}
	tx.rings = append(tx.rings, file)
}

// write writes the changes of one step, under a version of their own.
func (tx *transaction) write(changes table.Snapshot, new attachedFile) {
	before := tx.meta.counters
	before.Now = changes.Counters.Now
	if len(changes.Sessions)+len(changes.Claims)+len(changes.Freezes) == 0 && before == changes.Counters {
		return // at most time has passed
	}
	tx.changed = true
	tx.meta.version++
	tx.meta.counters = changes.Counters
	if err := tx.put(changes, new); err != nil {
		tx.broken = err
	}
}

func (tx *transaction) put(changes table.Snapshot, new attachedFile) error {
	c, db, version := tx.e.cache, tx.e.db, tx.meta.version
	for _, record := range changes.Sessions {
		if c.setStated(record) {
			tx.states(record)
			continue
		}
		delete(tx.stated, record.ID)
		row := sessionRow{SessionRecord: record, version: version, opened: version}
		old, known := c.sessions[record.ID]
		if known {
			row.opened, row.file = old.opened, old.file
		}
		if record.Closed {
			tx.close(record.ID, old)
		} else if record.ID == new.id {
			row.file = new.file
		}
		if err := db.putSession(row, tx.now); err != nil {
			return err
		}
		c.setSession(&row)
	}
	for i := range changes.Claims {
		row := claimRow{Claim: rows.Claim{ClaimRecord: changes.Claims[i]}, version: version}
		if row.ClaimRecord.State == lockkeeper.Ended {
			// The table knows them in this step only.
			st, _ := c.table.Status(row.Ref)
			row.Blockers, row.Place, row.ETA = st.Blockers, st.Position, st.ETA
		}
		if err := db.putClaim(row); err != nil {
			return err
		}
	}
	for _, f := range changes.Freezes {
		if err := db.putFreeze(f, version, tx.now); err != nil {
			return err
		}
	}
	for _, p := range changes.HoldTimes {
		if !c.writesPace(p) {
			continue
		}
		if err := db.putPace(p, version); err != nil {
			return err
		}
		c.setPaces([]table.HoldTimeRecord{p})
	}
	return nil
}

// states has what a session stated written at the end of the transaction.
func (tx *transaction) states(record table.SessionRecord) {
	if tx.stated == nil {
		tx.stated = make(map[string]table.SessionRecord)
	}
	tx.stated[record.ID] = record
}

// close prepares what is left to do when the end of a session is committed.
func (tx *transaction) close(id string, s session) {
	if s.file != "" {
		tx.gone = append(tx.gone, s.file)
	}
	if a := tx.e.local.Get(id); a != nil {
		tx.after = append(tx.after, func() {
			if tx.e.local.Get(id) == a { // else it has begun again since
				tx.e.detach(id)
			}
		})
	}
}

// due reports whether something has fallen due.
func (tx *transaction) due() bool {
	at, any := tx.e.cache.table.Next()
	return any && at <= tx.now
}

// passTime lets time pass until now. It is a step of its own before the first
// command, so that no step both ends a session and begins it again.
func (tx *transaction) passTime() {
	// A Pass is never refused; what breaks it is in tx.broken.
	_, _ = tx.step(table.Command{Op: table.Pass})
}

// rebooted reports whether the computer was started anew since the latest entry.
func (tx *transaction) rebooted() (bool, error) {
	if tx.meta.boot != tx.e.boot {
		return true, nil
	}
	if tx.e.boot != "" {
		return false, nil
	}
	reading, err := tx.e.clock()
	return reading < tx.meta.base+tx.meta.counters.Now-time.Second, err
}

// restart begins a new boot of the computer: time goes on from the latest
// entry, sessions that had a process are over, the others must resume (R19).
func (tx *transaction) restart() error {
	e := tx.e
	reading, err := e.clock()
	if err != nil {
		return err
	}
	var ended []lockkeeper.Key
	for id, s := range e.cache.sessions {
		if s.file == "" {
			continue
		}
		if e.folder.state(s.file) == fileLocked {
			return fmt.Errorf("%s is in use by processes that see another boot of this computer: an engine on SQLite is for "+
				"one computer, and not for sandboxes that hide its boot id", e.db.path)
		}
		ended = append(ended, lockkeeper.Key{Session: id, Epoch: s.epoch})
	}
	tx.meta.boot, tx.meta.base = e.boot, reading-tx.meta.counters.Now
	e.base = tx.meta.base
	tx.now = tx.meta.counters.Now
	tx.changed = true
	for _, k := range ended {
		_, _ = tx.step(table.Command{Op: table.Gone, Key: k}) // never refused
	}
	_, _ = tx.step(table.Command{Op: table.Restart}) // never refused
	return tx.broken
}

// sweep ends those of the sessions whose processes are all gone.
func (tx *transaction) sweep(ids map[string]bool) {
	for id := range ids {
		s, open := tx.e.cache.sessions[id]
		if open && s.file != "" && tx.e.local.Get(id) == nil && tx.e.folder.state(s.file) == fileFree {
			_, _ = tx.step(table.Command{Op: table.Gone, Key: lockkeeper.Key{Session: id, Epoch: s.epoch}}) // never refused
		}
	}
}

// sweepHolders ends the sessions in the way of w whose processes are all gone,
// so that a try is not refused because of the dead. Waiting claims hear of them
// by the kernel.
func (tx *transaction) sweepHolders(w *lockkeeper.Want) {
	c := tx.e.cache
	for tx.broken == nil && tx.e.othersFiled() {
		holders := make(map[string]bool)
		for _, target := range w.Targets {
			for st := range c.table.List(lockkeeper.Query{Meets: target.Path}) {
				if st.State != lockkeeper.Held {
					break // holds come first
				}
				holders[st.Ref.Session] = true
			}
		}
		open := len(c.sessions)
		if tx.sweep(holders); len(c.sessions) == open {
			return
		}
		// Who was next in line may be dead as well.
	}
}

// othersFiled reports whether sessions of other processes have files.
func (e *Engine) othersFiled() bool {
	own := 0
	for id, a := range e.local.All() {
		if a.Own.name != "" && e.cache.sessions[id].file == a.Own.name {
			own++
		}
	}
	return e.cache.filed > own
}

// finish writes what belongs to all changes, and commits.
func (tx *transaction) finish() error {
	if tx.broken != nil {
		return tx.broken
	}
	m, db := &tx.meta, tx.e.db
	if tx.changed && tx.now-m.purge >= purgeEvery {
		version, err := db.purge(tx.now)
		if err != nil {
			return err
		}
		m.purge, m.purged = tx.now, max(m.purged, version)
	}
	for id, record := range tx.stated { // order does not matter
		if err := db.run(writeStated, int64(record.Acked), int64(record.LowestOpen), m.version, id); err != nil {
			return err
		}
	}
	if tx.changed {
		if err := db.writeMeta(*m); err != nil {
			return err
		}
	}
	if err := db.commit(); err != nil {
		return err
	}
	tx.e.cache.version = m.version
	return nil
}
