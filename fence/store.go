package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy means that a request under an earlier fence has not ended yet. The fence of the caller is
// recorded, so no other request under an earlier one begins. Try again.
var ErrBusy = errors.New("an earlier request has not ended yet")

// ErrFull means that a [Memory] has no room for another resource.
var ErrFull = errors.New("too many resources")

// A Store keeps the highest fence of each resource. It is safe for concurrent use.
type Store interface {
	// Enter records fence as the highest of resource, and returns a context for the work under it, and
	// leave, which the caller calls once when that work has ended. If the resource has seen a higher
	// fence the error is a [*StaleError], and there is nothing to leave.
	Enter(ctx context.Context, resource string, fence uint64) (work context.Context, leave func(), err error)
}

// Memory keeps the highest fences in the memory of one process. The zero value is ready to use.
//
// Work under a fence begins when all work under lower fences has left. Until then Enter waits; the
// context of the earlier work ends, with a [*StaleError] as its cause. So a request that was
// admitted and then delayed can't write after a request under a higher fence.
//
// All other writers of the resource must pass the same Memory. It forgets all fences when the process
// ends: after a restart it accepts a late holder until the next holder comes.
type Memory struct {
	// MaxWait bounds how long Enter waits for work under lower fences; then it returns [ErrBusy]. 0
	// means 10 s.
	MaxWait time.Duration
	// MaxResources bounds the resources, because none is ever forgotten; above it Enter returns
	// [ErrFull]. 0 means 100,000.
	MaxResources int

	mu        sync.Mutex
	resources map[string]*resource
}

const (
	defaultMaxWait      = 10 * time.Second
	defaultMaxResources = 100_000
)

// resource is the state of one name. All of it is under Memory.mu. Work in progress has one fence:
//
//	working == 0, or active <= highest
//	active < highest: superseded is done, and nothing enters until working is 0
type resource struct {
	highest    uint64
	active     uint64        // the fence of the work in progress
	working    int           // how many are at work
	changed    chan struct{} // closed, and replaced, when highest rises or working becomes 0
	superseded context.Context
	supersede  context.CancelCauseFunc
}

// Enter is that of [Store].
func (m *Memory) Enter(ctx context.Context, name string, fence uint64) (context.Context, func(), error) {
	if err := validate(name, fence); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.resource(name)
	if err != nil {
		return nil, nil, err
	}
	if fence > r.highest {
		r.raise(name, fence)
	}
	if err := m.await(ctx, r, name, fence); err != nil {
		return nil, nil, err
	}
	if r.working == 0 {
		r.active = fence
		r.superseded, r.supersede = context.WithCancelCause(context.Background())
	}
	r.working++
	work, cancel := context.WithCancelCause(ctx)
	superseded := r.superseded
	stop := context.AfterFunc(superseded, func() { cancel(context.Cause(superseded)) })
	return work, sync.OnceFunc(func() {
		stop()
		cancel(nil)
		m.leave(r)
	}), nil
}

// await returns when no work under a lower fence is in progress, or an error. It is called, and
// returns, with m.mu locked.
func (m *Memory) await(ctx context.Context, r *resource, name string, fence uint64) error {
	var late <-chan time.Time
	for {
		if fence < r.highest {
			return &StaleError{Resource: name, Fence: fence, Highest: r.highest}
		}
		if r.working == 0 || r.active == fence {
			return nil
		}
		if late == nil {
			maxWait := m.MaxWait
			if maxWait <= 0 {
				maxWait = defaultMaxWait
			}
			timer := time.NewTimer(maxWait)
			defer timer.Stop()
			late = timer.C
		}
		changed, active := r.changed, r.active
		m.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-late:
			err = fmt.Errorf("%w: %q is used under fence %d", ErrBusy, name, active)
		}
		m.mu.Lock()
		if err != nil {
			return err
		}
	}
}

func (m *Memory) leave(r *resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.working--
	if r.working == 0 {
		r.supersede(nil) // frees the context; nobody uses it any more
		r.wake()
	}
}

func (m *Memory) resource(name string) (*resource, error) {
	if r := m.resources[name]; r != nil {
		return r, nil
	}
	limit := m.MaxResources
	if limit <= 0 {
		limit = defaultMaxResources
	}
	if len(m.resources) >= limit {
		return nil, fmt.Errorf("%w: the fences of %d are kept, and %q is another one", ErrFull, limit, name)
	}
	if m.resources == nil {
		m.resources = map[string]*resource{}
	}
	r := &resource{changed: make(chan struct{})}
	m.resources[name] = r
	return r, nil
}

func (r *resource) raise(name string, fence uint64) {
	r.highest = fence
	if r.working > 0 {
		r.supersede(&StaleError{Resource: name, Fence: r.active, Highest: fence})
	}
	r.wake()
}

func (r *resource) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Database keeps the highest fences in the table of a dialect, which [Dialect.Create] makes. They
// survive restarts, and any number of processes may share them.
//
// Enter commits the fence and returns: it does not wait for work under lower fences, which may be in
// another process. A request that was admitted and then delayed can still write late. A handler that
// writes to a database therefore repeats the check in its transaction:
//
//	resource, number, _ := fence.FromContext(r.Context())
//	err := fence.Postgres.Check(ctx, tx, resource, number)
func Database(db *sql.DB, d Dialect) Store { return &database{db: db, dialect: d} }

type database struct {
	db      *sql.DB
	dialect Dialect
}

func (s *database) Enter(ctx context.Context, name string, fence uint64) (context.Context, func(), error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("fence: check %q: %w", name, err)
	}
	defer tx.Rollback() // without effect after the commit
	if err := s.dialect.Check(ctx, tx, name, fence); err != nil {
		return nil, nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, nil, fmt.Errorf("fence: check %q: %w", name, err)
	}
	return ctx, func() {}, nil
}
