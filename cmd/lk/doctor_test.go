package main

import (
	"context"
	"iter"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// refusingEngine is the engine of an identity that may not look everywhere. Its lists end with an error.
type refusingEngine struct {
	lockkeeper.Engine
	err error
}

func (e refusingEngine) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Partial = true
	return g
}

func (e refusingEngine) List(context.Context, lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if e.err != nil {
			yield(lockkeeper.Status{}, e.err)
		}
	}
}

// lk doctor says that a rule names the identity only if the server has answered by its rules.
func TestDoctorKnowsRightsByTheirAnswer(t *testing.T) {
	denied := func(why lockkeeper.Reason, detail string) error {
		return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: why, Detail: detail}
	}
	for _, c := range []struct {
		name string
		err  error
		want lockkeeper.Grade
	}{
		{"empty list", nil, lockkeeper.Fine},
		{"rules for other paths", denied(lockkeeper.NoReason, "ci may not look there: the rules allow that below db"),
			lockkeeper.Fine},
		{"no rule", denied(lockkeeper.NoReason, "ci may not look there: no rule allows it anything"), lockkeeper.Broken},
		{"too many lists", denied(lockkeeper.Quota, "ci has 8 lists"), lockkeeper.Doubtful},
		{"no answer", &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}, lockkeeper.Doubtful},
	} {
		engine := refusingEngine{memlock.New(), c.err}
		client := lockkeeper.New(engine)
		d := &doctor{app: quietApp()}
		d.rights(t.Context(), &connection{Client: client, engine: engine})
		client.Close()
		if len(d.list) != 1 || d.list[0].Check != "rights" || d.list[0].Grade != c.want {
			t.Errorf("%s: %v, want it %v", c.name, d.list, c.want)
		}
	}
}
