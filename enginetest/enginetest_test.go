package enginetest_test

import (
	"context"
	"iter"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// handle is one of several handles on one engine: its Close keeps the engine open.
type handle struct{ lockkeeper.Engine }

func (handle) Close() error { return nil }

var realTime = enginetest.Harness{
	Fresh: func(*testing.T) enginetest.Open {
		e := memlock.New()
		return func() lockkeeper.Engine { return handle{e} }
	},
	Many: true,
}

// TestRealTime runs the suite in real time and over two handles, as for an engine that processes
// share.
func TestRealTime(t *testing.T) {
	testmode.NeedLong(t, "the engines of processes run the suite in real time")
	t.Parallel()
	enginetest.Run(t, realTime)
}

func TestStressInRealTime(t *testing.T) {
	t.Parallel()
	enginetest.Stress(t, realTime)
}

// narrow is an engine that claims, and has, fewer features than the one that it wraps.
type narrow struct {
	lockkeeper.Engine
	features lockkeeper.Features

	pathFences bool // it claims that fences rise on each path by itself
}

// newNarrow returns an engine that claims features alone. Its fences rise, and it remembers ended
// claims, only if it claims to.
func newNarrow(features lockkeeper.Features) narrow {
	b := &mutant{Engine: memlock.New()}
	if features&lockkeeper.FeatureFences == 0 {
		b.status = oneFence
	}
	if features&lockkeeper.FeatureOnce == 0 {
		ignoresLowestOpen(b)
	}
	return narrow{Engine: b, features: features}
}

func (n narrow) Guarantees() lockkeeper.Guarantees {
	g := n.Engine.Guarantees()
	g.Features = n.features
	if n.pathFences {
		g.FenceScope = lockkeeper.FencesPerPath
	}
	if n.features&lockkeeper.FeatureFences == 0 {
		g.Fences, g.FenceScope, g.Epoch = lockkeeper.FencesNever, "", ""
	}
	return g
}

func (n narrow) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := n.Guarantees().Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	return n.Engine.Claim(ctx, k, w)
}

func (n narrow) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	if err := n.Guarantees().RefuseEnding(&e); err != nil {
		return err
	}
	return n.Engine.End(ctx, k, e)
}

func (n narrow) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if err := n.Guarantees().RefuseWithout(lockkeeper.FeatureList); err != nil {
		return func(yield func(lockkeeper.Status, error) bool) { yield(lockkeeper.Status{}, err) }
	}
	return n.Engine.List(ctx, q)
}

func bubble(open func() lockkeeper.Engine) enginetest.Harness {
	return enginetest.Harness{Fresh: func(*testing.T) enginetest.Open { return open }, Bubble: true}
}

// TestUnclaimedFeatures: the suite tests only the features that an engine claims, and that it refuses
// the others.
func TestUnclaimedFeatures(t *testing.T) {
	sets := map[string]lockkeeper.Features{"nothing": 0, "fair order": lockkeeper.FeatureFIFO}
	for f := lockkeeper.Features(1); f&lockkeeper.TableFeatures != 0; f <<= 1 {
		sets["all but "+f.String()] = lockkeeper.TableFeatures &^ f
	}
	for name, features := range sets {
		t.Run(name, func(t *testing.T) {
			h := bubble(func() lockkeeper.Engine { return newNarrow(features) })
			enginetest.Run(t, h)
			enginetest.Stress(t, h)
		})
	}
}

// fencesByPath gives fences that rise on each path by itself, if a claim has one path and no path is
// above another one.
func fencesByPath(s *lockkeeper.Status) {
	if s.Fence != 0 && len(s.Grants) > 0 {
		path := s.Grants[0].Path
		s.Fence += uint64(path[len(path)-1]%7) << 20
	}
}

// TestFencesOfEachPath: the suite and the judge compare fences per path where the engine says so.
func TestFencesOfEachPath(t *testing.T) {
	features := lockkeeper.TableFeatures &^ (lockkeeper.FeatureManyTargets | lockkeeper.FeatureHierarchy)
	h := bubble(func() lockkeeper.Engine {
		b := &mutant{Engine: memlock.New(), status: fencesByPath}
		return narrow{Engine: b, features: features, pathFences: true}
	})
	enginetest.Run(t, h)
	enginetest.Stress(t, h)
}
