package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
	"github.com/lockkeeper/lockkeeper/table"
)

// Engine keeps claims as rows of a database. It is a [lockkeeper.Engine], safe for concurrent use.
type Engine struct {
	db        database
	dialect   dialect
	process   string // names this engine to other processes
	local     *local
	bounds    bounds
	holdTimes *holdTimes
	long      longQueues

	work     *queue // calls that need latches
	renewals *queue
	running  sync.WaitGroup
	closing  context.Context // ends when the engine is closed
	close    context.CancelFunc
	cutting  context.Context // ends when running transactions are cut off
	cut      context.CancelFunc
	wakeups  *wakeups
	meter    meter

	poller    *watching.Poller[moment]
	announced announcement
}

// newEngine returns an engine on a database that is ready.
func newEngine(_ context.Context, db database) (*Engine, error) {
	e := &Engine{
		db:        db,
		process:   rand.Text(),
		local:     newLocal(),
		bounds:    usual,
		holdTimes: newHoldTimes(),
		work:      newQueue(),
		renewals:  newQueue(),
	}
	e.dialect = postgresDialect{db.naming, db.plainly}
	if db.flavour == mysql {
		e.dialect = mysqlDialect{db.naming}
	}
	e.closing, e.close = context.WithCancel(context.Background())
	e.cutting, e.cut = context.WithCancel(context.Background())
	e.wakeups = newWakeups()
	e.poller = watching.NewPoller(e.closing, e.watchersRead)
	e.running.Add(workers + 2)
	for range workers {
		go e.worker(e.work)
	}
	go e.renewing()
	go e.checkWaiters()
	return e, nil
}

func (e *Engine) queueOf(j *job) *queue {
	if j.renews {
		return e.renewals
	}
	return e.work
}

// Guarantees implements lockkeeper.Engine.
func (e *Engine) Guarantees() lockkeeper.Guarantees { return e.db.flavour.guarantees() }

func (f flavour) guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       f.String(),
		Features:   lockkeeper.TableFeatures,
		Reach:      lockkeeper.OnNetwork,
		Survives:   lockkeeper.SurvivesPowerLoss,
		Fences:     lockkeeper.FencesForever,
		FenceScope: lockkeeper.FencesOverAll,
		Clock:      lockkeeper.ClockDatabase,
		Notes: lockkeeper.Notes{
			Survives: "as far as the database does: power loss only with synchronous commits",
			Fences:   "unless the database is set back to an older copy",
			Clock:    "it must not jump ahead by more than leases have left",
		},
		Breaks: "a database that loses what it has committed, as by a failover to a copy that lagged behind; a clock that " +
			"jumps ahead; rows that are changed by hand",
	}
}

// Attach implements lockkeeper.Engine.
func (e *Engine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := s.Check(false); err != nil {
		return lockkeeper.Lease{}, err
	}
	s.Named, s.Lapsed = slices.Clone(s.Named), slices.Clone(s.Lapsed)
	var reply table.Reply
	var refused error
	attempt := rand.Text()
	err := e.call(ctx, &job{
		session: s.ID,
		needs: func(sc *scope) {
			sc.sessions[s.ID], sc.entire[s.ID] = true, true
		},
		do: func(tx *transaction) { reply, refused = tx.attach(s, attempt, notify) },
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	return reply.Lease, nil
}

// attach attaches a session to this process. If an earlier transaction of the same attempt has
// succeeded, and its answer was lost, attach takes the session over from it.
func (tx *transaction) attach(s lockkeeper.Session, attempt string, notify func([]lockkeeper.Status)) (table.Reply,
	error) {
	if row := tx.view.sessions[s.ID]; row != nil && row.attempt == attempt {
		s.Epoch = row.Epoch
	}
	_, _ = tx.step(table.Command{Op: table.Pass}) // never refused
	open := tx.table.Open(s.ID)
	reply, err := tx.step(table.Command{Op: table.Attach, Session: s})
	if err != nil {
		return reply, err
	}
	tx.attached[s.ID] = session{process: tx.e.process, attempt: attempt}
	if !open {
		tx.dropped = append(tx.dropped, s.ID) // ended claims of an earlier session with this id (R16)
	}
	lease := reply.Lease
	tx.after = append(tx.after, func() {
		tx.e.local.attach(s.ID, lease.Key.Epoch, s.TTL, notify)
		for i := range lease.Claims {
			tx.e.local.note(&lease.Claims[i])
		}
	})
	return reply, nil
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := w.Check(); err != nil {
		return lockkeeper.Status{}, err
	}
	w.Targets = slices.Clone(w.Targets)
	ref := lockkeeper.Ref{Session: k.Session, ID: w.ID}
	reply, err := e.command(ctx, table.Command{Op: table.Claim, Key: k, Want: w}, func(sc *scope) {
		sc.refs[ref], sc.begun[ref] = true, true
		sc.ask(w.Targets)
		if w.Inside != (lockkeeper.Ref{}) {
			sc.refs[w.Inside], sc.around[w.Inside] = true, true // so that the claim that closes a cycle sees the others
		}
	})
	return reply.Status, err
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	_, err := e.command(ctx, table.Command{Op: table.End, Key: k, Ending: ending}, func(sc *scope) {
		switch ending.Kind {
		case lockkeeper.Release, lockkeeper.Lapsed:
			ref := lockkeeper.Ref{Session: k.Session, ID: cmp.Or(ending.ID, ending.Lapse.ID)}
			sc.refs[ref] = true
			sc.add(e.local.targets(ref))
		case lockkeeper.Leave:
			sc.entire[k.Session] = true
		case lockkeeper.Revoke:
			sc.refs[ending.Ref] = true
			sc.sessions[ending.Ref.Session] = true
		case lockkeeper.Thaw:
			sc.add([]lockkeeper.Target{{Path: ending.Path, Mode: lockkeeper.ModeExclusive}})
		}
	})
	return err
}

// command runs one command, and returns its answer after the commit.
func (e *Engine) command(ctx context.Context, c table.Command, needs func(*scope)) (table.Reply, error) {
	var reply table.Reply
	var refused error
	j := &job{
		session: c.Key.Session,
		needs: func(sc *scope) {
			sc.sessions[c.Key.Session] = true
			needs(sc)
		},
	}
	j.do = func(tx *transaction) {
		if refused = tx.roomFor(&c); refused != nil {
			return
		}
		reply, refused = tx.step(c)
		if j.unsure && overBefore(&c, refused) {
			refused = nil
		}
		if c.Op == table.Claim && refused == nil {
			st := reply.Status
			tx.begun = append(tx.begun, st.Ref)
			tx.after = append(tx.after, func() { e.local.note(&st) })
		}
	}
	err := e.call(ctx, j)
	if err == nil {
		err = refused
	}
	if err != nil {
		return table.Reply{}, err
	}
	return reply, nil
}

// overBefore reports whether a command was refused because the session or freeze that it ends has
// ended already: its first attempt, whose answer was lost, may have ended it.
func overBefore(c *table.Command, refused error) bool {
	switch {
	case c.Op != table.End:
		return false
	case c.Ending.Kind == lockkeeper.Leave:
		return errors.Is(refused, lockkeeper.ErrSession)
	}
	return c.Ending.Kind == lockkeeper.Thaw && errors.Is(refused, lockkeeper.ErrNotHeld)
}

// roomFor refuses freezes beyond table.MaxFreezes, since the table of a transaction has only some
// of them. A repeated freeze is not refused.
func (tx *transaction) roomFor(c *table.Command) error {
	ref := lockkeeper.Ref{Session: c.Key.Session, ID: c.Want.ID}
	made := slices.ContainsFunc(tx.view.freezes, func(f table.FreezeRecord) bool { return f.By == ref })
	if c.Want.Freeze == 0 || made || len(tx.view.freezes)+len(c.Want.Targets) <= table.MaxFreezes {
		return nil
	}
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Reason: lockkeeper.Quota,
		Detail: fmt.Sprintf("%d freezes are the most that are allowed", table.MaxFreezes),
	}
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	var reply table.Reply
	var refused error
	err := e.call(ctx, &job{
		session: k.Session, renews: true,
		needs: func(sc *scope) { sc.sessions[k.Session] = true },
		do:    func(tx *transaction) { reply, refused = tx.renew(k) },
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	e.local.renewed(k.Session, k.Epoch, reply.Lease.TTL)
	return reply.Lease, nil
}

// closeGrace is how long transactions may take to finish when the engine is closed. To cut them off
// at once would ask the server to cancel them: a PgBouncer before 1.20.1 may crash of such requests
// ("server in bad state"), and all its clients lose their connections.
const closeGrace = 2 * time.Second

// Close implements lockkeeper.Engine. Sessions that were not left live until their TTL has passed.
// It takes some seconds at most, and only if the database does not answer.
func (e *Engine) Close() error {
	e.close()
	defer e.cut()
	defer time.AfterFunc(closeGrace, e.cut).Stop()
	e.work.Close()
	e.renewals.Close()
	e.running.Wait()
	e.poller.Wait()
	if e.db.owns {
		return e.db.pool.Close()
	}
	return nil
}
