//go:build !unix

package main

import (
	"errors"
	"os"
)

// errNoGroups: the safety of lk run rests on process groups and their signals.
var errNoGroups = &exit{code: exitNotExecutable, say: errors.New("lk run needs the process groups of a Unix; the other verbs work here")}

type child struct {
	exited  chan int
	stopped chan os.Signal
}

func notifySignals(chan<- os.Signal) {}
func notifyStops(chan<- os.Signal)   {}
func continues(os.Signal) bool       { return false }
func signalNumber(os.Signal) int     { return 2 }
func isInterrupt(os.Signal) bool     { return false }
func dieOf(os.Signal, bool)          {}
func findCommand(string) error       { return errNoGroups }

func startChild([]string, []string, *os.File) (*child, error) { return nil, errNoGroups }
func replaceByCommand([]string, []string) error               { return errNoGroups }

func (c *child) forward(os.Signal)         {}
func (c *child) terminate()                {}
func (c *child) interrupted(int) bool      { return false }
func (c *child) signal(int) os.Signal      { return os.Interrupt }
func (c *child) kill()                     {}
func (c *child) groupAlive() bool          { return false }
func (c *child) stopWithIt(os.Signal) bool { return false }
func (c *child) goOn()                     {}
