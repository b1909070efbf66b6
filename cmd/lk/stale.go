package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
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

// lookAtAll lists all claims at once, for what is to be said of path. While the engine can't make changes
// safe, it lists the last safe state. If nothing of the list is at path, above it or below it, lookAtAll
// returns the error of a list of that path: to an identity that may not look there, it is not free.
func (a *app) lookAtAll(ctx context.Context, client *lockkeeper.Client, path lockkeeper.Path) ([]lockkeeper.Status,
	error) {
	all, err := listAll(ctx, client, lockkeeper.Query{Stale: true})
	if err = a.asOf(err); err == nil && len(listing.Overlapping(path, all)) == 0 {
		err = listing.DeniedAt(ctx, client, path)
	}
	return all, err
}
