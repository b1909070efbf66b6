package main

import (
	"context"
	"iter"
	"os"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// few is an engine that can neither list nor revoke nor freeze.
type few struct{ lockkeeper.Engine }

const fewFeatures = lockkeeper.TableFeatures &^
	(lockkeeper.FeatureList | lockkeeper.FeatureRevoke | lockkeeper.FeatureFreeze)

func (f few) Guarantees() lockkeeper.Guarantees {
	g := f.Engine.Guarantees()
	g.Name, g.Features, g.Notes.Instead = "few", fewFeatures, "use another engine"
	g.Reach = lockkeeper.OnMachine
	return g
}

func (f few) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := f.Guarantees().Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	return f.Engine.Claim(ctx, k, w)
}

func (f few) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	if err := f.Guarantees().RefuseEnding(&e); err != nil {
		return err
	}
	return f.Engine.End(ctx, k, e)
}

func (f few) List(context.Context, lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		yield(lockkeeper.Status{}, f.Guarantees().RefuseWithout(lockkeeper.FeatureList))
	}
}

// runFew is lk with the engine few.
func runFew() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:      []string{"few"},
		Form:       "few:",
		Example:    "few:",
		Guarantees: few{memlock.New()}.Guarantees(),
		Check:      func(string) error { return nil },
		Open: func(context.Context, string) (lockkeeper.Engine, error) {
			return few{memlock.New()}, nil
		},
	})
	os.Exit(mainCode())
}
