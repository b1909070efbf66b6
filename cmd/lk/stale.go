package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// asOf prints the age of a stale list, if err reports one, and returns other errors.
func (a *app) asOf(err error) error {
	ago, stale := lockkeeper.Stale(err)
	if !stale {
		return err
	}
	var e *lockkeeper.Error
	errors.As(err, &e)
	fmt.Fprintf(a.stderr, "lk: as of %s ago: %s\n", duration.Elapsed(ago), e.Detail)
	return nil
}

// hidden notes that the list of a user who may not look everywhere may lack something.
func (a *app) hidden(client *connection) {
	if client != nil && client.Guarantees().Partial {
		a.note("your identity may not look everywhere: there may be more than it sees")
	}
}

// lookAtAll lists all claims at once. While the engine can't make changes safe, it lists the
// last safe state.
func (a *app) lookAtAll(ctx context.Context, client *lockkeeper.Client) ([]lockkeeper.Status, error) {
	all, err := listAll(ctx, client, lockkeeper.Query{Stale: true})
	return all, a.asOf(err)
}
