//go:build !unix

package main

import "os"

// watchProcess returns a channel that is closed when the process has ended.
func watchProcess(pid int) (<-chan struct{}, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, errNoProcess
	}
	ended := make(chan struct{})
	go func() {
		if _, err := p.Wait(); err == nil { // an error is not the end: then it is kept until it is released
			close(ended)
		}
	}()
	return ended, nil
}

func ends(os.Signal) bool { return true }
func surviveBrokenPipes() {}
func outliveTerminal()    {}
