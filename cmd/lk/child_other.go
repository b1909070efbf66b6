//go:build !unix

package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// errNoGroups: the safety of lk run rests on process groups and their signals.
var errNoGroups = &exit{code: exitNotExecutable,
	say: errors.New("lk run needs the process groups of a Unix; the other verbs work here")}

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

func notifySignals(chan<- os.Signal) {}
func notifyStops(chan<- os.Signal)   {}
func continues(os.Signal) bool       { return false }
func signalNumber(os.Signal) int     { return 2 }
func isInterrupt(os.Signal) bool     { return false }
func asksToEnd(os.Signal) bool       { return false }
func dieOf(os.Signal, bool)          {}
func findCommand(string) error       { return errNoGroups }
func inForeground() bool             { return false }
func bootTime() time.Duration        { return 0 }

func startChild([]string, []string, ...*os.File) (*child, error) { return nil, errNoGroups }
func replaceByCommand([]string, []string) error                  { return errNoGroups }

func (c *child) forward(os.Signal)         {}
func (c *child) terminate()                {}
func (c *child) interrupted(int) bool      { return false }
func (c *child) signal(int) os.Signal      { return os.Interrupt }
func (c *child) kill()                     {}
func (c *child) groupRuns() bool           { return false }
func (c *child) reap() int                 { return 0 }
func (c *child) stopWithIt(os.Signal) bool { return false }
func (c *child) goOn()                     {}

func newGuard(string, *os.File, *os.File, func(string)) *guard { return nil }

func (g *guard) leaves([]byte, uint64) *os.File { return nil }
func (g *guard) watch(group, time.Duration)     {}
func (g *guard) attached(uint64)                {}
func (g *guard) start()                         {}
func (g *guard) until(time.Duration)            {}
func (g *guard) saidStop()                      {}
func (g *guard) left() <-chan bool              { return nil }
func (g *guard) follow(bool)                    {}
func (g *guard) stop()                          {}

func (a *app) newGuardVerb() *cobra.Command { return &cobra.Command{Use: "guard", Hidden: true} }
