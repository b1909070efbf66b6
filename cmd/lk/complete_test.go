package main

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper"
)

// Completion does not wait for an engine that does not answer.
func TestCompletionIsBounded(t *testing.T) {
	t.Setenv(engineVariable, "sqlite:"+t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		a := &app{stdout: io.Discard, stderr: io.Discard, open: func(context.Context, string) (lockkeeper.Engine, error) {
			<-over // whatever the context says
			return nil, lockkeeper.ErrUnavailable
		}}
		if got := a.live(); got != nil {
			t.Errorf("got %v of an engine that does not answer", got)
		}
		close(over)
	})
}
