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
	// lanes is how many transactions of a process are under way at once, renewals aside.
	lanes = 3
	// idleFirst is the longest that the database lets a transaction wait for its next
	// statement. Whoever is stopped in the middle of one then loses its latches, a
	// quarter of the shortest TTL later. Who was only slow gets twice as long the next
	// time, and so on, but never more than a quarter of its own shortest TTL.
	idleFirst = lockkeeper.MinTTL / 4
	// latchPatience is how long a transaction waits for a latch. Who has it commits
	// in milliseconds, or was stopped; other commands need not wait for that.
	latchPatience = 100 * time.Millisecond
	// attemptBound bounds one transaction with all its statements.
	attemptBound = 5 * time.Second
	// perseverance is for how long a transaction is tried again while the database
	// is away.
	perseverance = 5 * time.Second
	mostRounds   = 5 // until the whole tree is latched
)

// lane does jobs, one transaction after the other.
func (e *Engine) lane(q *queue) {
	defer e.running.Done()
	for {
		q.Wait()
		runtime.Gosched() // who was answered by the last transaction asks for more, in one and not in several
		jobs := q.take()
		if jobs == nil {
			return
		}
		q.finish(jobs, e.persist(jobs))
	}
}

// persist does jobs until they are done or it makes no sense any more. It returns
// those that have to wait for a latch.
func (e *Engine) persist(jobs []*job) (parked []*job) {
	began, pause := time.Now(), 2*time.Millisecond
	p := patience{latchPatience, idleFirst}
	for try := 0; ; try++ {
		tx, fate, err := e.attempt(jobs, p)
		if err == nil {
			e.conclude(tx, jobs)
			return nil
		}
		single := len(jobs) == 1
		e.meter.repeats(fate)
		switch {
		case e.closing.Err() != nil:
			finish(jobs, unavailable(calls.ErrClosed))
			return nil
		case fate == again && try < 20:
			if try > 2 {
				e.rest(time.Duration(rand.N(int64(pause))))
			}
			continue
		case single && fate == blocked:
			jobs[0].notUntil = time.Now().Add(latchPatience / 4)
			return jobs
		case single && (fate == failed || fate == again), time.Since(began) > perseverance:
			finish(jobs, e.trouble(err, jobs))
			return nil
		case fate == away || fate == unknown:
			for _, j := range jobs {
				j.unsure = j.unsure || fate == unknown
			}
			e.rest(pause/2 + time.Duration(rand.N(int64(pause))))
			pause, p.idle = min(2*pause, 500*time.Millisecond), min(2*p.idle, max(idleFirst, e.local.shortestTTL()/4))
			continue
		}
		half := len(jobs) / 2 // one of them may be what keeps all others from going on
		return append(e.persist(jobs[:half]), e.persist(jobs[half:])...)
	}
}

// rest waits a moment, or until the engine is closed.
func (e *Engine) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.closing.Done():
	}
}

func finish(jobs []*job, err error) {
	for _, j := range jobs {
		j.Answer(err)
	}
}

// conclude does what is to be done when a transaction has been committed.
func (e *Engine) conclude(tx *transaction, jobs []*job) {
	for _, do := range tx.after {
		do()
	}
	for _, ref := range e.local.behind(tx.view.claims) {
		if st, ok := tx.table.Status(ref); ok {
			tx.news.add(st) // a bell was lost
		}
	}
	e.local.learn(tx)
	e.long.learn(tx)
	for id := range tx.closed { // order does not matter
		if s := tx.view.sessions[id]; s != nil && tx.attached[id].attempt == "" {
			e.local.detach(id, s.Epoch)
		}
	}
	finish(jobs, nil)
	e.deliver(&tx.news)
	e.lookElsewhere(tx)
	e.watch.ring()
}

// attempt does one transaction with jobs. It begins anew when it finds that more has
// to be latched than was.
func (e *Engine) attempt(jobs []*job, p patience) (tx *transaction, f fate, err error) {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	tx = &transaction{e: e, scope: newScope(e.bounds), patience: p}
	for _, j := range jobs {
		j.needs(tx.scope)
	}
	committing, began := false, time.Now()
	err = e.dialect.with(ctx, e.db.pool, func(l link) error {
		tx.link = l
		if jobs[0].renews {
			committing, err = tx.renewAll(ctx, jobs)
		} else {
			committing, err = tx.whole(ctx, jobs)
		}
		return err
	})
	if err == nil {
		if committing {
			e.meter.commits(len(jobs), time.Since(began))
		}
		return tx, failed, nil
	}
	if errors.Is(err, errCut) || errors.Is(err, errNumbers) {
		return nil, failed, err
	}
	return nil, e.dialect.fateOf(err, committing), err
}

// whole does a transaction from begin to commit.
func (tx *transaction) whole(ctx context.Context, jobs []*job) (committing bool, err error) {
	d := tx.e.dialect
	for round := 1; ; round++ {
		tx.forget()
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
		if errors.Is(err, errCut) && (len(jobs) == 1 || tx.scope.line < tx.scope.head) && tx.scope.further() {
			err = nil
		}
		if err != nil {
			return false, err
		}
		if round >= mostRounds {
			tx.scope.all = true
		}
	}
}

// decide applies the jobs to what was read.
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
	return tx.sound()
}
