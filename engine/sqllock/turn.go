package sqllock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// How often rows are looked at while something waits: behind a bell that may be
// lost with the process that should have rung it, and where there is no bell.
const (
	pollBehindBell  = 2 * time.Second
	pollWithoutBell = 100 * time.Millisecond
)

// run is the engine's goroutine. It alone uses the connection and the cache.
func (e *Engine) run() {
	defer close(e.ran)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		look := true
		select {
		case <-e.closing:
			e.shut()
			return
		case <-e.queue.bell:
			look = false
		case id := <-e.deaths:
			e.dead[id] = true
		case <-e.bell.events():
		case <-e.bell.errors(): // it lost some
		case <-timer.C:
		}
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
		if e.transact(writes || len(e.dead) > 0) != nil && !any {
			break // nobody waits for it: the next turn tries again
		}
		look = false
	}
	e.watchDeaths()
}

// transact does one transaction, with the jobs that wait for it.
func (e *Engine) transact(writes bool) error {
	tx := &transaction{e: e, writes: writes}
	jobs, err := tx.whole()
	if err == errMustWrite {
		return e.transact(true)
	}
	if err != nil {
		// Whatever was done or not, the rows know it.
		e.cache = nil
		e.db.disconnect()
		err = unavailable(err)
	} else {
		for _, do := range tx.after {
			do()
		}
		for _, file := range tx.rings {
			e.folder.ring(file)
		}
	}
	for _, j := range jobs {
		j.done <- err
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

// errMustWrite is the end of a reading transaction that found something to write.
var errMustWrite = fmt.Errorf("a writing transaction is needed")

// whole does a transaction from begin to commit, and returns the jobs that it
// has begun.
func (tx *transaction) whole() (jobs []*job, err error) {
	e := tx.e
	if err := e.begin(tx.writes); err != nil {
		if _, busy := err.(busyError); !busy || err.(busyError).nobody {
			jobs = e.queue.take(true)
		}
		return jobs, err
	}
	return jobs, err
}
