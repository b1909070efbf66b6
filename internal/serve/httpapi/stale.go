package httpapi

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// A staleness is the part of an answer that marks it as old, because the engine can't make its
// present state durable.
type staleness struct {
	Stale   seconds `json:"stale,omitempty"`   // the age of the answer
	Because string  `json:"because,omitempty"` // why it is old
}

// statistics is the answer of GET /v1/stats.
type statistics struct {
	*listing.Stats
	staleness
}

// staleBy returns the staleness in err; if there is none, it returns err.
func staleBy(err error) (staleness, error) {
	ago, stale := lockkeeper.Stale(err)
	if !stale {
		return staleness{}, err
	}
	var e *lockkeeper.Error
	errors.As(err, &e)
	return staleness{seconds(ago), detail(e)}, nil
}

// staleAfter returns the staleness of a list that the caller did not read to its end.
func (c *call) staleAfter(ctx context.Context) (s staleness, err error) {
	nothing := lockkeeper.Query{
		Ref:   lockkeeper.Ref{Session: httpPrefix + "nothing", ID: solo.ClaimID},
		Brief: true,
		Stale: true,
	}
	for _, failed := range c.engine().List(ctx, nothing) {
		if failed != nil {
			s, err = staleBy(failed)
		}
	}
	return s, err
}
