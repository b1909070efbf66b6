package sqlitelock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/calls"
)

// How often the engine reads the rows while a claim waits: with file watching, in case the process
// that should wake this one has died, and without it.
const (
	pollWatching  = 2 * time.Second
	pollUnwatched = 100 * time.Millisecond
	rereadPause   = 4 * time.Millisecond // see fileWatcher.precedesCommit
)

// run runs the engine. Its goroutine alone uses the connection and the cache.
func (e *Engine) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		reread := true
		select {
		case <-e.closing:
			e.shut()
			return
		case <-e.queue.Added:
			reread = false
		case <-e.deaths:
			e.takeDeaths()
		case ev := <-e.files.events():
			if e.files.precedesCommit(ev) {
				e.again = rereadPause
			}
		case <-e.files.errors(): // the watcher has lost events
		case <-timer.C:
			if e.again *= 2; e.again > pollWatching {
				e.again = 0
			}
		}
		e.askForDeaths()
		e.serve(reread)
		timer.Reset(e.pause())
	}
}

// serve runs transactions until no call waits and no death is to be recorded. reread: it reads the
// rows once even if no call waits.
func (e *Engine) serve(reread bool) {
	for {
		reread = e.watchLateFiles() || reread
		any, writes := e.queue.waiting()
		if !any && !reread && len(e.dead) == 0 {
			break
		}
		e.turn <- struct{}{} // see Suspend
		err := e.transact(writes || len(e.dead) > 0, reread)
		<-e.turn
		if err != nil && !any {
			break // no caller waits: the next event tries again
		}
		reread = false
	}
	e.files.watchLog(e.db.path+"-wal", e.watched() > 0 || e.waitsFileless()) // every commit writes to it
	e.watchDeaths()
}

// suspendBound is how long Suspend waits for a transaction.
const suspendBound = time.Second

// Suspend implements lockkeeper.Suspender: a process that is stopped within a transaction keeps the file to itself.
func (e *Engine) Suspend() (resume func()) {
	late := time.NewTimer(suspendBound)
	defer late.Stop()
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }
	case <-late.C: // mostly it waits for somebody else's transaction
		return func() {}
	}
}

// watchLateFiles begins to watch the session files that are due, and reports whether there were any.
func (e *Engine) watchLateFiles() bool {
	if len(e.files.later) == 0 {
		return false
	}
	if now, err := e.clock(); err == nil && now < e.files.laterAt {
		return false
	}
	e.files.watchNow()
	return true
}

// wanted returns a function that a transaction calls while it waits for SQLite's lock. The function
// returns an error once the transaction is no longer needed: all its callers have given up, or the
// engine closes.
func (e *Engine) wanted(reread bool) func() error {
	return func() error {
		select {
		case <-e.closing:
			return calls.ErrClosed
		default:
		}
		if any, _ := e.queue.waiting(); any || reread || len(e.dead) > 0 {
			return nil
		}
		return errNobody
	}
}

// transact runs one transaction with the waiting calls. Without calls it only reads the rows.
func (e *Engine) transact(writes, reread bool) error {
	tx := &transaction{e: e, writes: writes, wanted: e.wanted(reread)}
	jobs, err := tx.run()
	switch {
	case err == errMustWrite:
		e.deliverEnds(&tx.external)
		e.deliver(&tx.external)
		return e.transact(true, reread)
	case errors.Is(err, errNobody):
		return err // nothing has happened
	case err != nil:
		// The rows show whether it committed.
		e.cache = nil
		e.db.disconnect()
		e.files.watchLog(e.db.path+"-wal", false) // it may have gone with the last connection
		err = e.db.unusable(err)
	default:
		for _, do := range tx.after {
			do()
		}
		for _, file := range tx.wakes {
			e.folder.wake(file)
		}
	}
	e.deliverEnds(&tx.external)
	if err == nil {
		e.deliverEnds(&tx.news)
	}
	for _, j := range jobs {
		j.Answer(err)
	}
	e.deliver(&tx.external)
	if err == nil {
		e.deliver(&tx.news)
		for _, file := range tx.endedFiles {
			e.folder.remove(file)
		}
	}
	return err
}

var (
	errMustWrite = errors.New("it has to be a writing transaction")
	errNobody    = errors.New("no caller waits for it any more")
)

// run runs the transaction from begin to commit, and returns the jobs that it has taken from the
// queue. If the transaction cannot begin, it takes jobs too: they fail.
func (tx *transaction) run() (jobs []*job, err error) {
	e := tx.e
	if err := tx.begin(); err != nil {
		if !errors.Is(err, errNobody) {
			jobs = e.queue.takeAll()
		}
		return jobs, err
	}
	defer func() {
		if err != nil || !tx.changed {
			// After some errors there is nothing to roll back.
			if failed := e.db.rollback(); failed != nil && err == nil {
				e.db.disconnect() // this ends the transaction in any case
				e.files.watchLog(e.db.path+"-wal", false)
			}
		}
	}()
	if err := tx.prepare(); err != nil {
		if err != errMustWrite {
			jobs = e.queue.takeAll()
		}
		return jobs, err
	}
	if tx.writes {
		jobs = e.queue.takeAll()
	} else {
		jobs = e.queue.takeReads(tx.latest)
	}
	if err := tx.catchUp(); err != nil {
		return jobs, err
	}
	for _, j := range jobs {
		j.do(tx)
	}
	if tx.changed || tx.broken != nil {
		err = tx.finish()
	}
	return jobs, err
}

// begin begins the transaction once no other process has SQLite's lock. Callers may give up
// meanwhile; if the last one does, begin gives up too.
func (tx *transaction) begin() error {
	e := tx.e
	reload, err := e.db.ready(context.Background())
	if err != nil {
		return err
	}
	if reload {
		e.cache = nil
	}
	return e.db.patiently(tx.wanted, func() error {
		tx.latest = e.queue.Last()
		if err := e.db.begin(tx.writes); err != nil {
			return err
		}
		// A reading transaction begins with the first row that it reads.
		m, found, err := e.db.meta()
		if err != nil {
			_ = e.db.rollback()
		}
		tx.meta, tx.found = m, found
		return err
	})
}

// prepare loads the rows and lets time pass until now, before the first job.
func (tx *transaction) prepare() error {
	if err := tx.refresh(); err != nil {
		return err
	}
	rebooted, err := tx.rebooted()
	if err != nil {
		return err
	}
	if tx.e.db.options.looks {
		return tx.simulate(rebooted)
	}
	if !tx.writes {
		if rebooted || tx.due() {
			return errMustWrite
		}
		tx.passTime() // for the ages in lists
		return tx.broken
	}
	if rebooted {
		if err := tx.restart(); err != nil {
			return err
		}
	}
	if tx.due() {
		tx.passTime()
	}
	tx.sweep(tx.e.dead)
	if tx.broken == nil {
		tx.after = append(tx.after, func() { clear(tx.e.dead) })
	}
	return tx.broken
}

// catchUp reads the time again after the jobs were taken: a job may have been sent since the clock
// was read, and its promise counts from when it was sent (R12). Reads promise nothing.
func (tx *transaction) catchUp() error {
	if !tx.writes {
		return nil
	}
	reading, err := tx.e.clock()
	if err != nil {
		return err
	}
	tx.now = max(tx.now, reading-tx.meta.base)
	if tx.due() {
		tx.passTime()
	}
	return tx.broken
}

// pause returns how long the engine may sleep if nothing wakes it.
func (e *Engine) pause() time.Duration {
	waits := len(e.waits) > 0 || e.db.options.polls && e.local.Len() > 0
	watched := e.watched() > 0 || e.waitsFileless()
	poll := time.Hour
	if len(e.files.later) > 0 {
		poll = watchDelay
	}
	switch {
	case waits || watched:
		poll = min(poll, pollWatching)
	case len(e.bounds) == 0 && (e.cache != nil || e.local.Len() == 0):
		return poll
	}
	if waits && e.files.unwatched || watched && !e.files.log {
		poll = min(poll, pollUnwatched)
	}
	if e.again > 0 {
		poll = min(poll, e.again)
	}
	if e.cache == nil {
		return min(poll, pollUnwatched) // it failed: try again soon
	}
	at, any := e.shown().Next()
	reading, err := e.clock()
	if !any || err != nil {
		return poll
	}
	return min(poll, max(at-(reading-e.base), time.Millisecond))
}

// waitsFileless reports whether claims may wait here whose sessions have no file that another
// process could write to.
func (e *Engine) waitsFileless() bool { return len(e.waits) > 0 && e.fileless > 0 }

// shut closes everything after Close.
func (e *Engine) shut() {
	e.queue.Close()
	e.mu.Lock()
	for f := range e.watchers.All() {
		f.wake()
	}
	e.mu.Unlock()
	watchedFiles.forget(e)
	e.files.close()
	e.db.close()
	e.folder.close()
	e.keepFiles()
}
