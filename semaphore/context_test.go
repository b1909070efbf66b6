package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// connection is a context of an application's own: its error is guarded by a lock,
// under which it also ends its owner.
type connection struct {
	context.Context
	mu    sync.Mutex
	err   error
	asked chan struct{} // gets something when Err is called for the first time
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

// An owner may be closed under a lock that its context's Err takes, while it is asked
// for slots.
func TestContextWithALock(t *testing.T) {
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
				t.Errorf("asked while the owner was closed: %v", err)
			}
			nothingHeld(t, m)
		})
	}
}

// A context that panics, as that of an owner that NewOwner did not make, leaves no
// lock behind.
func TestContextThatPanics(t *testing.T) {
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

// closeAtOnce closes an owner that nobody must have locked.
func closeAtOnce(t *testing.T, o *semaphore.Owner) {
	t.Helper()
	through := make(chan struct{})
	go func() {
		o.Close()
		close(through)
	}()
	select {
	case <-through:
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for who has locked the owner")
	}
}
