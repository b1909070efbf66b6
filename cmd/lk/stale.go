package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
)

// asOf says in one line that a list is old, if err tells that, and returns any other error.
func (a *app) asOf(err error) error {
	ago, stale := lockkeeper.Stale(err)
	if !stale {
		return err
	}
	var e *lockkeeper.Error
	errors.As(err, &e)
	fmt.Fprintf(a.stderr, "lk: as of %s ago: %s\n", passed(ago), e.Detail)
	return nil
}

// lookAtAll lists all claims at once for somebody who looks: while the engine can't make safe
// what is so now, what was so.
func (a *app) lookAtAll(ctx context.Context, client *lockkeeper.Client) ([]lockkeeper.Status, error) {
	all, err := listAll(ctx, client, lockkeeper.Query{Stale: true})
	return all, a.asOf(err)
}
