package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// connection is an application's own context: a lock guards its error, and the application closes
// the owner under the same lock.
type connection struct {
	context.Context
	mu    sync.Mutex
	err   error
	asked chan struct{} // receives at the first call of Err
	done  chan struct{}
}

func newConnection() *connection {
	return &connection{Context: context.Background(), asked: make(chan struct{}, 1), done: make(chan struct{})}
}

func (c *connection) Done() <-chan struct{} { return c.done }

func (c *connection) Err() error {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// TestCloseUnderTheLockOfErr closes an owner under a lock that the Err of its context takes, while
// an acquire calls Err.
func TestCloseUnderTheLockOfErr(t *testing.T) {
	m := semaphore.New[string]()
	for name, ask := range map[string]func(o *semaphore.Owner) error{
		"acquire": func(o *semaphore.Owner) error { _, err := m.TryAcquireFor(o, "db", 1, 1); return err },
		"do":      func(o *semaphore.Owner) error { return o.Do(func() error { return semaphore.ErrOwnerEnded }) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newConnection()
			o := semaphore.NewOwner(c)
			c.mu.Lock()
			asked := make(chan error)
			go func() { asked <- ask(o) }()
			<-c.asked
			closeAtOnce(t, o)
			c.err = context.Canceled
			close(c.done)
			c.mu.Unlock()
			if err := <-asked; !errors.Is(err, semaphore.ErrOwnerEnded) {
				t.Errorf("asked during Close: %v", err)
			}
			nothingHeld(t, m)
		})
	}
}

// TestPanicInErrLeavesNoLock uses an owner that NewOwner did not make: its context is nil.
func TestPanicInErrLeavesNoLock(t *testing.T) {
	m := semaphore.New[string]()
	for name, ask := range map[string]func(o *semaphore.Owner){
		"acquire": func(o *semaphore.Owner) { _, _ = m.TryAcquireFor(o, "db", 1, 1) },
		"do":      func(o *semaphore.Owner) { _ = o.Do(func() error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			var o semaphore.Owner
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				ask(&o)
			}()
			closeAtOnce(t, &o)
			nothingHeld(t, m)
		})
	}
}

// closeAtOnce closes an owner whose lock must be free.
func closeAtOnce(t *testing.T, o *semaphore.Owner) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		o.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits: the owner is locked")
	}
}
