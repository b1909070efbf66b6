package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// An engine that does not open holds nobody up who wants to stop.
func TestSignalWhileOpening(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard, engineFlag: "postgres://h/d"}
	a.open = func(ctx context.Context, _ string) (lockkeeper.Engine, error) {
		if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(syscall.SIGTERM) != nil {
			return nil, errors.New("no signal could be sent")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	err := a.run(t.Context(), &runOptions{command: []string{"true"}})
	var end *exit
	if !errors.As(err, &end) || end.code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("it ends with %v", err)
	}
}
