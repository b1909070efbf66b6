//go:build !unix

package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// errNoGroups: the safety of lk run rests on process groups and their signals.
var errNoGroups = &StartError{NotExecutable,
	errors.New("lk run needs the process groups of a Unix; the other verbs work here")}

type (
	child struct {
		exited  chan struct{}
		stopped chan os.Signal
		group   group
	}
	guard struct{}
	group struct {
		number int
		began  uint64
	}
)

// NotifySignals delivers nothing on this system.
func NotifySignals(chan<- os.Signal) {}

// SignalNumber returns the number of an interrupt, the only signal of this system.
func SignalNumber(os.Signal) int { return 2 }

// IsInterrupt returns false: lk does not die of signals on this system.
func IsInterrupt(os.Signal) bool { return false }

// DieOf does nothing on this system.
func DieOf(os.Signal, bool) {}

// FindCommand returns an error: lk runs no commands on this system.
func FindCommand(string) error { return errNoGroups }

// InForeground returns false: this system has no process groups.
func InForeground() bool { return false }

// Replace returns an error: lk runs no commands on this system.
func Replace([]string, []string) error { return errNoGroups }

func notifyStops(chan<- os.Signal) {}
func continues(os.Signal) bool     { return false }
func asksToEnd(os.Signal) bool     { return false }
func bootTime() time.Duration      { return 0 }

func startChild([]string, []string, ...*os.File) (*child, error) { return nil, errNoGroups }

func (c *child) forward(os.Signal)                        {}
func (c *child) terminate()                               {}
func (c *child) interrupted(int) bool                     { return false }
func (c *child) signal(int) os.Signal                     { return os.Interrupt }
func (c *child) kill()                                    {}
func (c *child) groupRuns() bool                          { return false }
func (c *child) reap() int                                { return 0 }
func (c *child) stopWithIt(os.Signal, func() func()) bool { return false }
func (c *child) goOn()                                    {}

func newGuard(string, *os.File, *os.File, func(string)) *guard { return nil }

func (g *guard) leaves(*Farewell) *os.File  { return nil }
func (g *guard) watch(group, time.Duration) {}
func (g *guard) attached(uint64)            {}
func (g *guard) start()                     {}
func (g *guard) until(time.Duration)        {}
func (g *guard) termSent()                  {}
func (g *guard) ended() <-chan bool         { return nil }
func (g *guard) replace(bool)               {}
func (g *guard) stop()                      {}

// Guard returns ErrNoOrders: this system has no guards.
func Guard(string, io.Writer, func(context.Context, []byte, uint64)) error { return ErrNoOrders }
