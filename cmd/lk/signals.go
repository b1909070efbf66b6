package main

import (
	"context"
	"errors"
	"os"

	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// anySignal makes lk end at any signal that it would pass on to its child.
func anySignal(os.Signal) bool { return true }

// stoppedBy returns a context that ends at the first signal for which stops is true. Call the returned
// function when the work is over: it returns the error with which lk ends because of that signal, or
// nil without one.
func stoppedBy(
	ctx context.Context, signals <-chan os.Signal, stops func(os.Signal) bool,
) (context.Context, func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			select {
			case s := <-signals:
				if stops(s) {
					cancel(interrupted(s))
				}
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() error {
		cancel(nil)
		<-watched
		var stopped *exit
		if errors.As(context.Cause(ctx), &stopped) {
			return stopped
		}
		return nil
	}
}

// interrupted returns the end of lk by a signal. lk dies of the terminal's interrupts.
func interrupted(s os.Signal) *exit {
	e := &exit{code: exitSignal + supervise.SignalNumber(s)}
	if supervise.IsInterrupt(s) {
		e.signal = s
	}
	return e
}
