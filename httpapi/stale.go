package httpapi

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/report"
)

// A staleness is a part of an answer that tells what was so, since the engine can't make safe
// what is so now.
type staleness struct {
	Stale   seconds `json:"stale,omitempty"`   // that long ago
	Because string  `json:"because,omitempty"` // why not what is so now
}

// statistics is the answer of GET /v1/stats.
type statistics struct {
	*report.Stats
	staleness
}

// staleBy is the staleness that err tells of, or else err.
func staleBy(err error) (staleness, error) {
	ago, stale := lockkeeper.Stale(err)
	if !stale {
		return staleness{}, err
	}
	var e *lockkeeper.Error
	errors.As(err, &e)
	return staleness{seconds(ago), detail(e)}, nil
}

// staleAfter is the staleness of a list of which not all was read.
func (c *call) staleAfter(ctx context.Context) (s staleness, err error) {
	nothing := lockkeeper.Query{Ref: lockkeeper.Ref{Session: madeHere + "nothing", ID: theClaim}, Brief: true, Stale: true}
	for _, failed := range c.engine().List(ctx, nothing) {
		if failed != nil {
			s, err = staleBy(failed)
		}
	}
	return s, err
}
