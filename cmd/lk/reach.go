package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// trial says how long to try an engine that can't be reached yet.
type trial struct {
	began time.Time
	bound time.Duration // from began; 0: fail at once
	what  string        // the wanted paths, for messages
}

// reach is connect for verbs that wait. It tries again while a server or a database can't
// be reached; the bound of the wait includes that time.
func (a *app) reach(ctx context.Context, p trial, options ...lockkeeper.ClientOption) (*connection, error) {
	client, err := a.connect(ctx, options...)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || p.bound == 0 || !a.onNetwork() {
		return client, err
	}
	a.note("%s: not in line yet: %s; lk keeps trying for %s", p.what, words(err), duration.Text(p.bound))
	ctx, cancel := context.WithDeadline(ctx, p.began.Add(p.bound))
	defer cancel()
	for {
		select {
		case <-time.After(networkPause):
		case <-ctx.Done():
			return nil, err // the error of the engine, not of the context
		}
		client, again := a.connect(ctx, options...)
		if !errors.Is(again, lockkeeper.ErrUnavailable) {
			return client, again
		}
		if ctx.Err() == nil {
			err = again
		}
	}
}

// onNetwork reports whether the engine is a server or a database, which may come back.
func (a *app) onNetwork() bool {
	url, _, err := a.chooseURL()
	return err == nil && schemeOf(url).Guarantees.Reach == lockkeeper.OnNetwork
}

// restOf returns what is left of a wait with that bound, and at least a nanosecond.
func restOf(began time.Time, bound time.Duration) time.Duration {
	return max(time.Until(began.Add(bound)), time.Nanosecond)
}

// printNotices prints the warnings of the engine. In CI it also warns that the default engine excludes
// only processes of this machine.
func (a *app) printNotices(client *connection) {
	if a.quiet {
		return
	}
	if e, ok := client.engine.(lockkeeper.Noticer); ok {
		for _, f := range e.Notices() {
			fmt.Fprintf(a.stderr, "lk: warning: %s: %s\n", f.Detail, f.Remedy)
		}
	}
	if ci := os.Getenv("CI"); client.named || ci == "" || ci == "false" {
		return
	}
	fmt.Fprintf(a.stderr, "lk: no engine is named, so this excludes %s; name one with %s=lk://HOST or sqlite:FILE\n",
		defaultReach(), engineVariable)
}
