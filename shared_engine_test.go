package lockkeeper_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// Closing one of several clients of an engine releases the holds of that client alone.
func TestClosedClientLeavesASharedEngineOpen(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	one, two := lockkeeper.New(e, lockkeeper.SharedEngine()), lockkeeper.New(e, lockkeeper.SharedEngine())
	defer two.Close()
	must(t)(one.Lock(background, "a"))
	held := must(t)(two.Lock(background, "b"))
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	must(t)(two.TryLock(background, "a"))
	if held.Err() != nil {
		t.Error(held.Err())
	}
}

// The error of a program that waits for its own hold says how to enter the hold again.
func TestRefusalByAnOwnHoldNamesItsContext(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c, other := lockkeeper.New(e, lockkeeper.SharedEngine()), lockkeeper.New(e, lockkeeper.SharedEngine())
	defer c.Close()
	defer other.Close()
	must(t)(c.Lock(background, "db"))
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	_, waited := c.Lock(ctx, "db/test")
	_, tried := c.TryLock(background, "db")
	_, foreign := other.TryLock(background, "db")
	for _, err := range []error{waited, tried} {
		if !errors.Is(err, lockkeeper.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "this client holds it: pass the Context of that hold") {
			t.Errorf("got %v, want the context of the client's own hold named", err)
		}
	}
	if strings.Contains(foreign.Error(), "this client") {
		t.Errorf("another client is told: %v", foreign)
	}
}

func TestAcquireOfNothingSaysWhatToName(t *testing.T) {
	c := lockkeeper.New(memlock.New())
	defer c.Close()
	_, err := c.Acquire(background)
	if !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), "there are no targets: name 1 to 64 paths") {
		t.Errorf("got %v", err)
	}
}
