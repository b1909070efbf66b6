package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// trial says how long to try an engine that can't be reached yet.
type trial struct {
	began time.Time
	bound time.Duration // from began; 0: fail at once
	what  string        // the wanted paths, for messages
	quiet bool
}

// reach is connect for verbs that wait. It tries again while a server or a database can't
// be reached; the bound of the wait includes that time.
func (a *app) reach(ctx context.Context, p trial, options ...lockkeeper.ClientOption) (*connection, error) {
	client, err := a.connect(ctx, options...)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || p.bound == 0 || !a.onNetwork() {
		return client, err
	}
	a.noteUnless(p.quiet)(fmt.Sprintf("%s: not in line yet: %s; lk keeps trying for %s", p.what, words(err),
		duration.Text(p.bound)))
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

// trial returns the trial of lk run: until the bound of the wait, or without one for the TTL.
func (o *runOptions) trial() trial {
	bound := o.wait
	if bound == lockkeeper.Forever {
		bound = o.ttl
	}
	return trial{o.began, bound, o.what(), o.quiet}
}

// waitLeft is the rest of the wait.
func (o *runOptions) waitLeft() time.Duration {
	if o.wait == 0 || o.wait == lockkeeper.Forever {
		return o.wait
	}
	return leftOf(o.began, o.wait)
}

// leftOf is the rest of a wait with that bound.
func leftOf(began time.Time, bound time.Duration) time.Duration {
	return max(time.Until(began.Add(bound)), time.Nanosecond)
}
