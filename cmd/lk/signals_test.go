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

// A signal ends lk while the engine does not open.
func TestSignalWhileOpening(t *testing.T) {
	place := newReservationOptions()
	place.as, place.paths = "me", []lockkeeper.Path{"db"}
	verbs := map[string]struct {
		signals []os.Signal
		do      func(*app) error
	}{
		"run": {[]os.Signal{syscall.SIGTERM}, func(a *app) error {
			target := lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeExclusive}
			return a.run(t.Context(), &runOptions{command: []string{"true"}, targets: []lockkeeper.Target{target}})
		}},
		"keep, which outlives its terminal": {[]os.Signal{syscall.SIGHUP, syscall.SIGTERM}, func(a *app) error {
			return a.keep(t.Context(), &keepOptions{reservationOptions: place, pid: os.Getpid()})
		}},
	}
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			a := &app{stdout: io.Discard, stderr: io.Discard, engineFlag: "postgres://h/d"}
			a.open = func(ctx context.Context, _ string) (lockkeeper.Engine, error) {
				self, err := os.FindProcess(os.Getpid())
				for _, s := range verb.signals {
					err = errors.Join(err, self.Signal(s))
				}
				if err != nil {
					return nil, err
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			var end *exit
			if err := verb.do(a); !errors.As(err, &end) || end.code != exitSignal+int(syscall.SIGTERM) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
