package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// trial is for how long an engine that can't be reached yet is tried.
type trial struct {
	began time.Time
	bound time.Duration // 0: it fails at once
	what  string        // is asked for, for messages
	quiet bool
}

// reach is connect for verbs that wait: a server or a database that can't be reached yet is
// tried again. The bound of their wait covers that too.
func (a *app) reach(ctx context.Context, p trial, options ...lockkeeper.ClientOption) (*connection, error) {
	client, err := a.connect(ctx, options...)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || p.bound == 0 || !a.onNetwork() {
		return client, err
	}
	a.noteUnless(p.quiet)(fmt.Sprintf("%s: not in line yet: %s; lk keeps trying for %s", p.what, words(err), human(p.bound)))
	ctx, cancel := context.WithDeadline(ctx, p.began.Add(p.bound))
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

// trial is that of lk run: until the bound of the wait, or for the TTL where there is none.
func (o *runOptions) trial() trial {
	bound := o.wait
	if bound == lockkeeper.Forever {
		bound = o.ttl
	}
	return trial{o.began, bound, o.what(), o.quiet}
}

// waitLeft is what is left of the bound of the wait.
func (o *runOptions) waitLeft() time.Duration {
	if o.wait == 0 || o.wait == lockkeeper.Forever {
		return o.wait
	}
	return leftOf(o.began, o.wait)
}

// leftOf is what is left of a wait with that bound.
func leftOf(began time.Time, bound time.Duration) time.Duration {
	return max(time.Until(began.Add(bound)), time.Nanosecond)
}
