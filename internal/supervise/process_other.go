//go:build !unix

package supervise

import "os"

// WatchProcess returns a channel that is closed when the process has ended.
func WatchProcess(pid int) (<-chan struct{}, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, ErrNoProcess
	}
	ended := make(chan struct{})
	go func() {
		if _, err := p.Wait(); err == nil { // an error is not the end: keep the lock until it is released
			close(ended)
		}
	}()
	return ended, nil
}

// EndsKeeping reports whether a signal asks lk keep to end: here any does.
func EndsKeeping(os.Signal) bool { return true }

// SurviveBrokenPipes does nothing: this system has no signal for a broken pipe.
func SurviveBrokenPipes() {}

// OutliveTerminal does nothing: this system has no signal for a closed terminal.
func OutliveTerminal() {}
