package sqlitelock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/calls"
)

// How often rows are looked at while something waits: behind a bell that may be
// lost with the process that should have rung it, and where there is no bell.
const (
	pollBehindBell  = 2 * time.Second
	pollWithoutBell = 100 * time.Millisecond
	lookAgain       = 4 * time.Millisecond // see bell.early
)

// run runs the engine. Its goroutine alone uses the connection and the cache.
func (e *Engine) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		look := true
		select {
		case <-e.closing:
			e.shut()
			return
		case <-e.queue.Added:
			look = false
		case <-e.deaths:
			e.hearDeaths()
		case ev := <-e.bell.events():
			if e.bell.early(ev) {
				e.again = lookAgain
			}
		case <-e.bell.errors(): // it lost some
		case <-timer.C:
			if e.again *= 2; e.again > pollBehindBell {
				e.again = 0
			}
		}
		e.askForDeaths()
		e.turn(look)
		timer.Reset(e.pause())
	}
}

// turn does what there is to do.
func (e *Engine) turn(look bool) {
	for {
		any, writes := e.queue.waiting()
		if !any && !look && len(e.dead) == 0 {
			break
		}
		if e.transact(writes || len(e.dead) > 0, look) != nil && !any {
			break // nobody waits for it: the next turn tries again
		}
		look = false
	}
	e.bell.watchLog(e.db.path+"-wal", e.followed() > 0 || e.waitsFileless()) // which every commit changes
	e.watchDeaths()
}

// wanted returns a function that says why a transaction that can't begin yet is
// not wanted any more; nil as long as it is. Callers may leave meanwhile.
func (e *Engine) wanted(look bool) func() error {
	return func() error {
		select {
		case <-e.closing:
			return calls.ErrClosed
		default:
		}
		if any, _ := e.queue.waiting(); any || look || len(e.dead) > 0 {
			return nil
		}
		return errNobody
	}
}

// transact does one transaction, with the jobs that wait for it. It is done
// without any if it is to look at the rows.
func (e *Engine) transact(writes, look bool) error {
	tx := &transaction{e: e, writes: writes, wanted: e.wanted(look)}
	jobs, err := tx.whole()
	switch {
	case err == errMustWrite:
		e.deliver(&tx.heard)
		return e.transact(true, look)
	case errors.Is(err, errNobody):
		return err // and nothing was done
	case err != nil:
		// Whatever was done or not, the rows know it.
		e.cache = nil
		e.db.disconnect()
		e.bell.watchLog(e.db.path+"-wal", false) // it may have gone with the last connection
		err = e.db.trouble(err)
	default:
		for _, do := range tx.after {
			do()
		}
		for _, file := range tx.rings {
			e.folder.ring(file)
		}
	}
	for _, j := range jobs {
		j.Answer(err)
	}
	e.deliver(&tx.heard)
	if err == nil {
		e.deliver(&tx.news)
		for _, file := range tx.gone {
			e.folder.remove(file)
		}
	}
	return err
}

var (
	errMustWrite = errors.New("it has to be a writing transaction")
	errNobody    = errors.New("nobody waits for it any more")
)

// whole does a transaction from begin to commit, and returns the jobs that it
// has taken out of the queue. Jobs that can't begin are taken too: they fail.
func (tx *transaction) whole() (jobs []*job, err error) {
	e := tx.e
	if err := tx.begin(); err != nil {
		if !errors.Is(err, errNobody) {
			jobs = e.queue.takeAll()
		}
		return jobs, err
	}
	defer func() {
		if err != nil || !tx.changed {
			// If it fails after an error there is nothing to roll back any more.
			if failed := e.db.rollback(); failed != nil && err == nil {
				e.db.disconnect() // which ends it for sure
				e.bell.watchLog(e.db.path+"-wal", false)
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

// begin begins the transaction once no other process has SQLite's lock. While it
// waits for that, callers may leave; when the last has, it need not be had.
func (tx *transaction) begin() error {
	e := tx.e
	anew, err := e.db.ready(context.Background())
	if err != nil {
		return err
	}
	if anew {
		e.cache = nil
	}
	return e.db.patiently(tx.wanted, func() error {
		tx.latest = e.queue.Last()
		if err := e.db.begin(tx.writes); err != nil {
			return err
		}
		// A reading one begins in truth with the first row that it reads.
		m, found, err := e.db.meta()
		if err != nil {
			_ = e.db.rollback()
		}
		tx.meta, tx.found = m, found
		return err
	})
}

// prepare brings everything up to this moment, before the first job.
func (tx *transaction) prepare() error {
	if err := tx.refresh(); err != nil {
		return err
	}
	rebooted, err := tx.rebooted()
	if err != nil {
		return err
	}
	if tx.e.db.options.looks {
		return tx.imagine(rebooted)
	}
	if !tx.writes {
		if rebooted || tx.due() {
			return errMustWrite
		}
		tx.passTime() // for the ages in what is listed
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

// catchUp brings the time up to this moment, after the jobs were taken: some may
// have come since the clock was read, and what they are promised counts from when
// they were sent (R12). What only reads promises nothing.
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

// pause is how long nothing needs to be looked at.
func (e *Engine) pause() time.Duration {
	waits := len(e.waits) > 0 || e.db.options.polls && e.local.Len() > 0
	follows := e.followed() > 0 || e.waitsFileless()
	poll := time.Hour
	switch {
	case waits || follows:
		poll = pollBehindBell
	case len(e.bounds) == 0:
		return poll
	}
	if waits && e.bell.deaf || follows && !e.bell.log {
		poll = pollWithoutBell
	}
	if e.again > 0 {
		poll = min(poll, e.again)
	}
	if e.cache == nil {
		return min(poll, pollWithoutBell) // it failed: try again soon
	}
	at, any := e.shown().Next()
	reading, err := e.clock()
	if !any || err != nil {
		return poll
	}
	return min(poll, max(at-(reading-e.base), time.Millisecond))
}

// waitsFileless reports whether claims of this process may wait for which there
// is no file that others would ring.
func (e *Engine) waitsFileless() bool { return len(e.waits) > 0 && e.fileless > 0 }

// shut ends what is left when the engine is closed.
func (e *Engine) shut() {
	e.queue.Close()
	e.mu.Lock()
	for f := range e.followers.All() {
		f.ring()
	}
	e.mu.Unlock()
	watchedFiles.forget(e)
	e.bell.close()
	e.db.close()
	e.folder.close()
	e.keepFiles()
}
