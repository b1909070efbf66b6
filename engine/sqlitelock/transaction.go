package sqlitelock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// How long ended rows are kept, and how often they are purged.
const (
	keepEnded  = time.Minute      // claims; longer if the table remembers them
	keepClosed = 10 * time.Minute // sessions and freezes
	purgeEvery = time.Minute
)

// transaction is one transaction of the file: it applies commands to the table and writes their
// changes, all or nothing. A writing transaction excludes all other writers from its begin on, so
// the rows that it reads stay true until it commits. It notifies nobody of its own changes before
// the commit.
type transaction struct {
	e       *Engine
	meta    meta
	found   bool          // there is a row of meta
	now     time.Duration // the engine's time, read inside
	writes  bool          // it may change rows
	wanted  func() error  // see Engine.wanted
	latest  uint64        // number of the latest job when it began
	changed bool          // it has changed rows
	broken  error         // the error of a write: it must not commit

	external   news     // notifications of changes by other processes
	news       news     // notifications of its own steps, for after the commit
	wakes      []string // session files of other processes to wake
	endedFiles []string // session files of ended sessions

	stated map[string]table.SessionRecord // acknowledgements to write at the end
	after  []func()                       // run after the commit
}

// refresh brings the cache up to date with the rows, and reads the time.
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
	// If the clock reads less than at the latest change, as in a sandbox with another clock, the
	// engine's time stands still until the clock has caught up (R20).
	tx.now = max(reading-m.base, m.counters.Now)
	e.base = m.base
	return nil
}

// load brings the cache up to the version in meta. If the cache contradicts the new rows, load
// reads all rows.
func (tx *transaction) load() error {
	e, m := tx.e, tx.meta
	if c := e.cache; c != nil && c.version == m.version {
		return nil
	} else if c != nil && c.version >= m.purged && c.version < m.version {
		news, err := c.loadNew(e.db, m)
		if err == nil {
			tx.notifyLoaded(news)
			e.loaded = m.version
			return nil
		}
		if resultCode(err) != 0 {
			return err // the database failed, not the cache
		}
	}
	e.cache = nil
	c, news, err := loadAll(e.db, m, e.loaded > 0) // nobody watched before the first reading
	if err != nil {
		return err
	}
	e.cache = c
	tx.notifyReloaded(news)
	e.loaded = m.version
	return nil
}

// notifyLoaded prepares notifications of changes by other processes. These are committed already,
// so they are delivered whatever becomes of this transaction.
func (tx *transaction) notifyLoaded(l loaded) {
	e := tx.e
	for i := range l.sessions {
		row := &l.sessions[i]
		if a := e.local.Get(row.ID); a != nil && (row.Closed || a.Epoch != 0 && row.Epoch != a.Epoch) {
			// Its last notification has the claims that ended with it.
			for _, ended := range l.ended {
				if ended.Ref.Session == row.ID {
					tx.external.add(a.Notify, ended.Status)
				}
			}
			e.detach(row.ID)
		}
	}
	for _, ref := range l.live {
		if e.local.Get(ref.Session) != nil {
			if st, ok := e.cache.table.Status(ref); ok {
				tx.notifyExternal(st)
			}
		}
	}
	tx.notifyEnded(l.ended)
	tx.external.any, tx.external.anything = true, true
}

// notifyEnded prepares notifications of ended claims. Watchers get only ends that are newer than the
// rows whose ends they were given.
func (tx *transaction) notifyEnded(ended []endedRow) {
	for _, row := range ended {
		tx.notifyExternal(row.Status)
		if row.version > tx.e.loaded && !tx.e.view.recorded(row.Ref) {
			tx.external.ended = append(tx.external.ended, row.Status)
		}
	}
}

// notifyReloaded prepares notifications of everything, after all rows were read again.
func (tx *transaction) notifyReloaded(l loaded) {
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
				tx.notifyExternal(st)
			}
		}
	}
	tx.notifyEnded(l.ended)
	tx.external.any, tx.external.anything = true, true
}

// notifyExternal prepares to notify a session of this process of a change by another one.
func (tx *transaction) notifyExternal(st lockkeeper.Status) {
	if a := tx.e.local.Get(st.Ref.Session); a != nil {
		tx.external.add(a.Notify, st)
	}
}

// step applies one command and writes its changes. Its answer is valid after the commit.
func (tx *transaction) step(c table.Command) (table.Reply, error) {
	return tx.stepWith(c, "")
}

// stepWith is step for an Attach of a session with a session file.
func (tx *transaction) stepWith(c table.Command, file string) (table.Reply, error) {
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	t := tx.e.cache.table
	c.At = tx.now
	reply, err := t.Step(&c)
	if err == nil && mayWait(&c, &reply) {
		tx.e.files.watchNow()
	}
	tx.collect(t)
	tx.write(t.Changes(), attachedFile{c.Session.ID, file})
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	return reply, err
}

// mayWait reports whether claims of the session wait after a step, so that another process may grant
// them at any time.
func mayWait(c *table.Command, reply *table.Reply) bool {
	switch c.Op {
	case table.Claim:
		return reply.Status.State == lockkeeper.Waiting || reply.Status.Converting
	case table.Attach:
		return len(reply.Lease.Claims) > 0
	}
	return false
}

// attachedFile is the session that a step attaches, and its file; no id: it attaches none.
type attachedFile struct{ id, file string }

// collect prepares the notifications of a step.
func (tx *transaction) collect(t *table.Table) {
	e := tx.e
	watched := e.watched() > 0 // a watcher that begins later reads after this transaction
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
		} else if watched {
			tx.news.changed = append(tx.news.changed, st)
		}
		if a := e.local.Get(ev.Ref.Session); a != nil {
			tx.news.add(a.Notify, st)
		} else if s := e.cache.sessions[ev.Ref.Session]; s.file != "" && ev.Kind != table.Queued {
			tx.wakeFile(s.file)
		}
	}
}

func (tx *transaction) wakeFile(file string) {
	for _, f := range tx.wakes {
		if f == file {
			return
		}
	}
	tx.wakes = append(tx.wakes, file)
}

// write writes the changes of one step, under a version of their own.
func (tx *transaction) write(changes table.Snapshot, new attachedFile) {
	before := tx.meta.counters
	before.Now = changes.Counters.Now
	if len(changes.Sessions)+len(changes.Claims)+len(changes.Freezes) == 0 && before == changes.Counters {
		return // only time may have passed
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
			// The table has the blockers in this step only.
			st, _ := c.table.Status(row.Ref)
			row.Blockers, row.Position, row.ETA = st.Blockers, st.Position, st.ETA
			row.Changed = tx.now // it may have ended long before, while no process ran
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
		if !c.mustWrite(p) {
			continue
		}
		if err := db.putHoldTime(p, version); err != nil {
			return err
		}
		c.setHoldTimes([]table.HoldTimeRecord{p})
	}
	return nil
}

// states records the acknowledgements of a session, to be written once at the end.
func (tx *transaction) states(record table.SessionRecord) {
	if tx.stated == nil {
		tx.stated = make(map[string]table.SessionRecord)
	}
	tx.stated[record.ID] = record
}

// close prepares to remove the file and the attachment of an ended session after the commit.
func (tx *transaction) close(id string, s session) {
	if s.file != "" {
		tx.endedFiles = append(tx.endedFiles, s.file)
	}
	if a := tx.e.local.Get(id); a != nil {
		tx.after = append(tx.after, func() {
			if tx.e.local.Get(id) == a { // else the session has begun again since
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

// passTime lets time pass until now. It is a step of its own before the first command, so that no
// step both ends a session and begins it again.
func (tx *transaction) passTime() {
	// A Pass is never refused; tx.broken has the error of a failed write.
	_, _ = tx.step(table.Command{Op: table.Pass})
}

// rebooted reports whether the computer was started again since the latest change.
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

// restart begins a new boot of the computer: time goes on from the latest change, sessions of
// processes end, and the others must resume (R19).
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

// sweep ends those of the sessions whose processes are all dead.
func (tx *transaction) sweep(ids map[string]bool) {
	for id := range ids {
		s, open := tx.e.cache.sessions[id]
		if open && s.file != "" && tx.e.local.Get(id) == nil && tx.e.folder.state(s.file) == fileFree {
			_, _ = tx.step(table.Command{Op: table.Gone, Key: lockkeeper.Key{Session: id, Epoch: s.epoch}}) // never refused
		}
	}
}

// sweepHolders ends the sessions that hold paths of w and whose processes are all dead, so that a
// claim that does not wait is not refused because of them. For waiting claims the kernel reports
// the deaths.
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
		// The process of the next holder may be dead as well.
	}
}

// othersFiled reports whether sessions of other processes have session files.
func (e *Engine) othersFiled() bool {
	own := 0
	for id, a := range e.local.All() {
		if a.Own.name != "" && e.cache.sessions[id].file == a.Own.name {
			own++
		}
	}
	return e.cache.filed > own
}

// finish writes acknowledgements and the row of meta, purges old rows now and then, and commits.
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
	tx.e.cache.version, tx.e.loaded = m.version, m.version
	return nil
}
