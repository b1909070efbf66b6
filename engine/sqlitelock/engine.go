package sqlitelock

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/calls"
	"github.com/lockkeeper/lockkeeper/internal/migrations"
	"github.com/lockkeeper/lockkeeper/internal/watching"
	"github.com/lockkeeper/lockkeeper/table"
)

// options change how a file is opened.
type options struct {
	looks    bool               // see Look
	careless bool               // of tests: commits don't wait for the disk
	polls    bool               // of tests: it polls, and never waits for files or locks in the kernel
	driver   string             // of tests: another driver than SQLite's own
	schema   *migrations.Schema // of tests: other migrations
}

// Engine keeps claims in a file of SQLite. It is a [lockkeeper.Engine], safe for concurrent use.
type Engine struct {
	queue   queue
	closing chan struct{} // closed by Close
	ran     chan struct{} // closed when the goroutine has ended
	turn    chan struct{} // filled while a transaction runs, and while the engine is suspended
	once    sync.Once
	deaths  chan struct{} // filled when there is something in freed

	// Of the goroutine alone.
	db      *database
	cache   *cache // nil: all rows must be read
	view    *view  // see simulate
	clock   func() (time.Duration, error)
	boot    string
	base    time.Duration // reading of the clock at the engine's time 0, as of the last transaction
	folder  *folder
	files   fileWatcher
	foreign []string                  // entries in the folder of session files that are no session files
	dead    map[string]bool           // sessions whose processes are dead
	waits   map[lockkeeper.Ref]uint64 // waiting claims of this process, and their tickets
	bounds  map[lockkeeper.Ref]bool   // held claims of this process with an end
	askedAt time.Duration             // when the kernel was last asked for deaths
	ends    uint64                    // number of the latest end that watchers were given
	loaded  int64                     // version of the rows whose ends watchers were given
	again   time.Duration             // pause before the next read after a write to the log; 0: none is needed

	mu       sync.Mutex                     // guards all below
	local    attached.Sessions[sessionFile] // sessions attached here; changed by the goroutine alone
	fileless int                            // how many of them have no session file
	watchers watching.Index[*watcher]
	freed    []string // sessions whose files nobody has locked any more
}

// Open opens the locks in a file, and creates the file if there is none; its directory must exist.
// Any number of processes may do so at once.
//
// Open refuses a file that is not lockkeeper's, is damaged, has a newer version, or is on a network
// file system, with ErrInvalid, and leaves it unchanged. It returns ErrUnavailable if it can't read
// or write the file. It updates a file of an older version. ctx bounds the opening alone.
func Open(ctx context.Context, path string) (*Engine, error) {
	boot, err := bootID()
	if err != nil {
		return nil, unavailable(err)
	}
	return open(ctx, path, options{}, newBootClock(), boot)
}

// open is Open on a computer with that clock and boot id.
func open(ctx context.Context, path string, o options, clock func() (time.Duration, error), boot string) (*Engine,
	error) {
	if path == "" {
		return nil, lockkeeper.Invalid("no file: name one, such as locks.db")
	}
	path, err := realPath(path)
	if err != nil {
		return nil, err
	}
	me, err := actorOf(path)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		queue:   queue{calls.New[*job]()},
		closing: make(chan struct{}),
		turn:    make(chan struct{}, 1),
		ran:     make(chan struct{}),
		files:   fileWatcher{polls: o.polls},
		deaths:  make(chan struct{}, 1),
		clock:   clock,
		boot:    boot,
		dead:    make(map[string]bool),
		waits:   make(map[lockkeeper.Ref]uint64),
		bounds:  make(map[lockkeeper.Ref]bool),
	}
	opened := make(chan error)
	go e.live(ctx, path, me, o, opened)
	if err := <-opened; err != nil {
		return nil, err
	}
	return e, nil
}

// live is the goroutine of the engine: it opens the file, reports the result, and runs the engine
// until Close. This goroutine opens and creates all files, as me.
func (e *Engine) live(ctx context.Context, path string, me actor, o options, opened chan<- error) {
	defer close(e.ran)
	end, err := me.become()
	if err != nil {
		opened <- err
		return
	}
	defer end()
	db, err := openDatabase(ctx, path, me, o)
	if err == nil {
		e.db, e.folder = db, newFolder(db)
		if err = e.first(ctx); err != nil {
			e.folder.close()
			db.leaveUntouched()
			err = db.refusal(err)
		}
	}
	opened <- err
	if err == nil {
		e.run()
	}
}

// first reads all rows, ends the sessions of dead processes, and removes their files.
func (e *Engine) first(ctx context.Context) error {
	if _, err := e.folder.opened(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tx := &transaction{e: e, writes: !e.db.options.looks, wanted: ctx.Err}
	if err := tx.begin(); err != nil {
		return err
	}
	if !tx.writes {
		return errors.Join(tx.prepare(), e.db.rollback())
	}
	known := make(map[string]bool)
	err := tx.prepare()
	if err == nil {
		open := make(map[string]bool)
		for id := range e.cache.sessions {
			open[id] = true
		}
		tx.sweep(open)
		for _, s := range e.cache.sessions {
			known[s.file] = true
		}
		err = tx.finish()
	}
	if err != nil {
		_ = e.db.rollback()
		return err
	}
	e.foreign = e.folder.clean(known)
	for _, file := range tx.wakes {
		e.folder.wake(file)
	}
	return nil
}

// Guarantees implements lockkeeper.Engine.
func (e *Engine) Guarantees() lockkeeper.Guarantees { return guarantees() }

func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       "sqlite",
		Features:   lockkeeper.TableFeatures,
		Reach:      lockkeeper.OnMachine,
		Survives:   lockkeeper.SurvivesKill,
		Fences:     lockkeeper.FencesForever,
		FenceScope: lockkeeper.FencesOverAll,
		Clock:      lockkeeper.ClockBoot,
		Notes: lockkeeper.Notes{
			Survives: "a reboot or a power loss ends what running processes hold; fences and sessions without a process " +
				"survive it",
			Fences: "unless the file is replaced by an older copy",
			Clock:  "nobody can set it, and it counts while the computer sleeps",
		},
		Breaks: "a file that is removed, replaced or edited while it is in use (noticed with the next renewal); a disk " +
			"that reports data as written that it has not written; use from two kernels at once, as through a folder shared " +
			"with a virtual machine. The engine refuses the network file systems that it knows",
	}
}

// Attach implements lockkeeper.Engine.
func (e *Engine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := s.Check(false); err != nil {
		return lockkeeper.Lease{}, err
	}
	var reply table.Reply
	var refused error
	err := e.call(ctx, false, func(tx *transaction) { reply, refused = tx.attach(s, notify) })
	if err == nil {
		err = refused
	}
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	return reply.Lease, nil
}

// attach attaches a session to this process.
func (tx *transaction) attach(s lockkeeper.Session, notify func([]lockkeeper.Status)) (table.Reply, error) {
	e := tx.e
	if open, known := e.cache.sessions[s.ID]; known && open.epoch != s.Epoch {
		return tx.step(table.Command{Op: table.Attach, Session: s}) // refused (R19): it needs no file
	}
	a := &attachment{}
	if !s.Outlive {
		var err error
		if a, err = e.fileFor(s.ID); err != nil {
			return table.Reply{}, unavailable(err)
		}
	}
	epoch := a.Epoch
	a.Epoch = 0 // until the commit is certain
	reply, err := tx.stepWith(table.Command{Op: table.Attach, Session: s}, a.Own.name)
	if err != nil {
		if tx.broken == nil {
			a.Epoch = epoch
		}
		return reply, err
	}
	tx.after = append(tx.after, func() {
		if a.Own.file == nil {
			e.detach(s.ID) // the file of an earlier attach is no longer in force
		}
		e.keep(s.ID, &attachment{
			Epoch:  reply.Lease.Key.Epoch,
			TTL:    reply.Lease.TTL,
			Notify: notify,
			Own:    a.Own,
		})
		for i := range reply.Lease.Claims {
			e.noteWait(&reply.Lease.Claims[i])
		}
	})
	return reply, nil
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	reply, err := e.step(ctx, table.Command{Op: table.Renew, Key: k})
	return reply.Lease, err
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	reply, err := e.step(ctx, table.Command{Op: table.Claim, Key: k, Want: w})
	return reply.Status, err
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	_, err := e.step(ctx, table.Command{Op: table.End, Key: k, Ending: ending})
	return err
}

// step runs one command, and returns its answer after the commit.
func (e *Engine) step(ctx context.Context, c table.Command) (table.Reply, error) {
	var reply table.Reply
	var refused error
	err := e.call(ctx, false, func(tx *transaction) {
		if c.Op == table.Claim && c.Want.Wait == 0 {
			tx.sweepHolders(&c.Want)
		}
		reply, refused = tx.step(c)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return table.Reply{}, err
	}
	return reply, nil
}

// Close implements lockkeeper.Engine. Sessions that were not left live until their TTL has passed.
func (e *Engine) Close() error {
	e.once.Do(func() { close(e.closing) })
	<-e.ran
	return nil
}
