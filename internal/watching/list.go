package watching

import (
	"context"
	"iter"

	"github.com/lockkeeper/lockkeeper"
)

// List yields what read returns for a query, or if the query follows, what follow yields. It is the frame of
// [lockkeeper.Engine.List] in engines that read their claims from elsewhere.
func List(
	ctx context.Context, q lockkeeper.Query,
	read func(context.Context, lockkeeper.Query) ([]lockkeeper.Status, error),
	follow func(context.Context, lockkeeper.Query, func(lockkeeper.Status, error) bool),
) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if err := q.Check(); err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		if q.Follow {
			follow(ctx, q, yield)
			return
		}
		all, err := read(ctx, q)
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		for _, st := range all {
			if !yield(st, nil) {
				return
			}
		}
	}
}
