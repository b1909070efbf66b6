package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// reach is connect for lk run. A server or a database that can't be reached yet is tried until
// the bound of the wait, or for the TTL where there is none; a try fails at once.
func (a *app) reach(ctx context.Context, o *runOptions) (*connection, error) {
	patience := o.wait
	if patience == lockkeeper.Forever {
		patience = o.ttl
	}
	options := []lockkeeper.ClientOption{lockkeeper.SessionTTL(o.ttl), lockkeeper.SessionLabel(o.labels())}
	client, err := a.connect(ctx, options...)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || patience == 0 || !a.onNetwork() {
		return client, err
	}
	if !o.quiet {
		fmt.Fprintf(a.stderr, "lk: %s: not in line yet: %s; lk keeps trying for %s\n", o.what(), words(err), human(patience))
	}
	ctx, cancel := context.WithDeadline(ctx, o.began.Add(patience))
	defer cancel()
	for {
		select {
		case <-time.After(networkPause):
		case <-ctx.Done():
			return nil, err // what the engine said, not that the time is over
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

// onNetwork reports whether the engine is somewhere else, where it may come back.
func (a *app) onNetwork() bool {
	url, _, err := a.chooseURL()
	return err == nil && (isDatabase(url) || strings.HasPrefix(url, "lk:") || strings.HasPrefix(url, "lks:"))
}

// waitLeft is what is left of the bound of the wait.
func (o *runOptions) waitLeft() time.Duration {
	if o.wait == 0 || o.wait == lockkeeper.Forever {
		return o.wait
	}
	return max(time.Until(o.began.Add(o.wait)), time.Nanosecond)
}
