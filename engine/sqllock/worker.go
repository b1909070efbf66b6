package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
)

const (
	// workers is how many transactions of a process run at once, renewals aside.
	workers = 3
	// idleFirst bounds the time between two statements of a transaction; then the database ends it.
	// So a process that is stopped loses its latches after a quarter of the shortest TTL. A process
	// that was only slow gets twice the time with every repetition, up to a quarter of the shortest
	// TTL of its own sessions.
	idleFirst = lockkeeper.MinTTL / 4
	// latchPatience is how long a transaction waits for a latch. Other transactions commit within
	// milliseconds; if one is stopped, the calls that do not need its latches must go on.
	latchPatience = 100 * time.Millisecond
	// attemptBound bounds one transaction with all its statements.
	attemptBound = 5 * time.Second
	// perseverance bounds the repetitions while the database is away.
	perseverance = 5 * time.Second
	mostRounds   = 5 // after so many attempts it latches the whole tree
)

// worker runs one transaction after the other.
func (e *Engine) worker(q *queue) {
	defer e.running.Done()
	for {
		q.Wait()
		runtime.Gosched() // callers that the last transaction answered add their next calls, which then share one
		jobs := q.take()
		if jobs == nil {
			return
		}
		q.finish(jobs, e.runJobs(jobs))
	}
}

// runJobs repeats the transaction of jobs until it has an outcome that a repetition would not
// change, and answers them. It returns the jobs that have to wait for a latch.
func (e *Engine) runJobs(jobs []*job) (parked []*job) {
	began, pause := time.Now(), 2*time.Millisecond
	p := patience{latchPatience, idleFirst}
	for try := 0; ; try++ {
		tx, o, err := e.attempt(jobs, p)
		if err == nil {
			e.afterCommit(tx, jobs)
			return nil
		}
		single := len(jobs) == 1
		e.meter.repeats(o)
		switch {
		case e.closing.Err() != nil:
			finish(jobs, unavailable(calls.ErrClosed))
			return nil
		case o == retryable && try < 20:
			if try > 2 {
				e.pause(time.Duration(rand.N(int64(pause))))
			}
			continue
		case single && o == lockTimeout:
			jobs[0].notUntil = time.Now().Add(latchPatience / 4)
			return jobs
		case single && (o == fatal || o == retryable), time.Since(began) > perseverance:
			finish(jobs, e.unavailableBecause(err, jobs))
			return nil
		case o == unreachable || o == unknownOutcome:
			for _, j := range jobs {
				j.unsure = j.unsure || o == unknownOutcome
			}
			e.pause(pause/2 + time.Duration(rand.N(int64(pause))))
			pause, p.idle = min(2*pause, 500*time.Millisecond), min(2*p.idle, max(idleFirst, e.local.shortestTTL()/4))
			continue
		}
		half := len(jobs) / 2 // one of them may be what fails the others
		return append(e.runJobs(jobs[:half]), e.runJobs(jobs[half:])...)
	}
}

// pause waits for d, or until the engine is closed.
func (e *Engine) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.closing.Done():
	}
}

// finish answers jobs.
func finish(jobs []*job, err error) {
	for _, j := range jobs {
		j.Answer(err)
	}
}

// afterCommit publishes a committed transaction: it updates what this process knows, answers the
// jobs, notifies sessions, and starts transactions for queues and sessions that it has left
// unfinished.
func (e *Engine) afterCommit(tx *transaction, jobs []*job) {
	for _, do := range tx.after {
		do()
	}
	for _, ref := range e.local.behind(tx.view.claims) {
		if st, ok := tx.table.Status(ref); ok {
			tx.news.add(st) // its wakeup was lost
		}
	}
	e.local.update(tx)
	e.long.update(tx)
	for id := range tx.closed { // order does not matter
		if s := tx.view.sessions[id]; s != nil && tx.attached[id].attempt == "" {
			e.local.detach(id, s.Epoch)
		}
	}
	finish(jobs, nil)
	e.deliver(&tx.news)
	e.checkElsewhere(tx)
	e.wakeups.wake()
}

// attempt runs one transaction of the database with jobs.
func (e *Engine) attempt(jobs []*job, p patience) (tx *transaction, f outcome, err error) {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	tx = &transaction{e: e, scope: newScope(e.bounds), patience: p, blocks: 1}
	for _, j := range jobs {
		j.needs(tx.scope)
	}
	committing, began := false, time.Now()
	err = e.dialect.with(ctx, e.db.pool, func(l link) error {
		tx.link = l
		if jobs[0].renews {
			committing, err = tx.renewAll(ctx, jobs)
		} else {
			committing, err = tx.run(ctx, jobs)
		}
		return err
	})
	if err == nil {
		if committing {
			e.meter.commits(len(jobs), time.Since(began))
		}
		return tx, fatal, nil
	}
	if errors.Is(err, errPartial) || errors.Is(err, errNumbers) {
		return nil, fatal, err
	}
	return nil, e.dialect.outcomeOf(err, committing), err
}

// run runs the transaction from begin to commit. If it has to latch or read more, it rolls back and
// begins again. committing: the commit was sent.
func (tx *transaction) run(ctx context.Context, jobs []*job) (committing bool, err error) {
	d := tx.e.dialect
	for round := 1; ; round++ {
		tx.reset()
		wider, err := tx.read(ctx)
		if err == nil && !wider {
			err = tx.decide(jobs)
		}
		if err == nil && !wider {
			return tx.write(ctx)
		}
		if failed := tx.send(ctx, d.rollback()); failed != nil && err == nil {
			err = failed
		}
		if errors.Is(err, errWider) {
			err = nil
		}
		if errors.Is(err, errPartial) && (len(jobs) == 1 || tx.scope.limit < tx.scope.prefix) && tx.scope.readMore() {
			err = nil
		}
		if errors.Is(err, errNumbers) && tx.drawMore() {
			err = nil
		}
		if err != nil {
			return false, err
		}
		if round-tx.draws >= mostRounds {
			tx.scope.all = true
		}
	}
}

// decide applies the jobs to the rows read.
func (tx *transaction) decide(jobs []*job) error {
	if err := tx.load(); err != nil {
		return err
	}
	if len(tx.view.claims) > 0 {
		tx.review()
	}
	for _, j := range jobs {
		j.do(tx)
	}
	return tx.verify()
}
