package enginetest

import (
	"iter"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// example is a want that needs its feature and as few others as possible.
type example struct {
	feature lockkeeper.Features
	want    lockkeeper.Want
}

func examples() []example {
	x := []lockkeeper.Target{exclusive("x")}
	return []example{
		{shares, lockkeeper.Want{Targets: []lockkeeper.Target{shared("x")}}},
		{counts, lockkeeper.Want{Targets: []lockkeeper.Target{permits("x", 1, 2)}}},
		{trees, lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("x/y")}}},
		{many, lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("x"), exclusive("z")}}},
		{ranked, lockkeeper.Want{Targets: x, Priority: 1}},
		{steals, lockkeeper.Want{Targets: x, Steal: lockkeeper.Ask}},
		{softWriters, lockkeeper.Want{Targets: x, WriterPolicy: lockkeeper.Soft}},
		{maxHold, lockkeeper.Want{Targets: x, MaxHold: time.Second}},
		{amends, lockkeeper.Want{Targets: x, Revision: 1}},
		{measured, lockkeeper.Want{Targets: x, Steal: lockkeeper.Take, After: lockkeeper.AfterMeasured}},
		{freezes, lockkeeper.Want{Targets: x, Freeze: time.Second}},
	}
}

// Unsupported: an engine refuses a request that needs an unclaimed feature at once, and changes
// nothing.
var unsupportedChecks = []check{
	{"Unsupported/claims", 0, func(w *world) {
		p := w.peer("one")
		for _, e := range examples() {
			if w.claims(e.feature) {
				continue
			}
			s, err := p.send(e.want)
			if err == nil {
				w.Errorf("%s is not claimed, and yet answered: %+v", e.feature, s)
				continue
			}
			w.is(err, lockkeeper.ErrUnsupported)
		}
		w.free(exclusive("x"))
	}},
	{"Unsupported/operators", 0, func(w *world) {
		p, c := w.peer("one"), w.client("operator")
		p.hold(exclusive("db"))
		if !w.claims(revokes) {
			w.is(p.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: p.ref(p.last)}), lockkeeper.ErrUnsupported)
			w.is(c.Revoke(w.ctx(), p.ref(p.last), true, lockkeeper.Label{}), lockkeeper.ErrUnsupported)
		}
		if !w.claims(freezes) {
			w.is(p.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}), lockkeeper.ErrUnsupported)
			w.is(c.Thaw(w.ctx(), "db", lockkeeper.Label{}), lockkeeper.ErrUnsupported)
			w.is(c.Freeze(w.ctx(), "db", time.Hour, lockkeeper.Label{}), lockkeeper.ErrUnsupported)
		}
		for _, follow := range []bool{false, true} {
			if w.claims(lists) {
				break
			}
			q := lockkeeper.Query{Follow: follow}
			for _, list := range []iter.Seq2[lockkeeper.Status, error]{p.engine.List(w.ctx(), q), c.List(w.ctx(), q)} {
				for s, err := range list {
					if err == nil {
						w.Fatalf("not claimed, and yet listed: %+v", s)
					}
					w.is(err, lockkeeper.ErrUnsupported)
					break
				}
			}
		}
		p.stays(p.last, lockkeeper.Held)
	}},
	{"Unsupported/guarantees are constant and whole", 0, func(w *world) {
		g := w.handles[0].Guarantees()
		if g != w.handles[len(w.handles)-1].Guarantees() {
			w.Error("two handles of one state claim different things")
		}
		for name, text := range map[string]string{
			"Name":     g.Name,
			"Reach":    string(g.Reach),
			"Survives": string(g.Survives),
			"Fences":   string(g.Fences),
			"Clock":    string(g.Clock),
			"Breaks":   g.Breaks,
		} {
			if text == "" {
				w.Errorf("Guarantees.%s says nothing", name)
			}
		}
		if w.claims(fences) == (g.Fences == lockkeeper.FencesNever) {
			w.Errorf("the engine claims %s, and its fences rise %s", g.Features, g.Fences)
		}
		if w.claims(fences) == (g.FenceScope == "") {
			w.Errorf("the engine claims %s, and its fences rise %q", g.Features, g.FenceScope)
		}
		if (g.Epoch != "") != (g.Fences == lockkeeper.FencesPerLife) {
			w.Errorf("the epoch is %q, and fences rise %s", g.Epoch, g.Fences)
		}
		if extra := g.Features &^ lockkeeper.AllFeatures; extra != 0 {
			w.Errorf("features %b are unknown", extra)
		}
	}},
}
