package redlock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// moment is the result of one read.
type moment struct {
	claims []*seen
	change uint64
	err    error
}

// watchersRead returns the read of the poller.
func (e *Engine) watchersRead() watching.Read[moment] {
	return func(queries []lockkeeper.Query, _ bool) *moment {
		readings, err := e.read(e.closing, sameSession(queries), true)
		if err != nil {
			return &moment{err: err}
		}
		return &moment{claims: merge(readings), change: changeOf(readings)}
	}
}

// sameSession returns the session of which alone all the queries select claims; "" if there is none.
func sameSession(queries []lockkeeper.Query) string {
	only := onlySession(queries[0])
	for _, q := range queries[1:] {
		if onlySession(q) != only {
			return ""
		}
	}
	return only
}

// follow yields the claims that q selects, and then their changes.
func (e *Engine) follow(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	w := e.poller.Join(q)
	defer w.Leave()
	f := newFollower(q)
	for {
		m := w.Next(ctx)
		switch {
		case m == nil && ctx.Err() == nil:
			yield(lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errClosed})
			return
		case m == nil:
			return
		case m.err != nil:
			yield(lockkeeper.Status{}, m.err)
			return
		}
		if !f.report(m, yield) {
			return
		}
	}
}

// follower finds what one watcher has not received yet.
type follower struct {
	query    lockkeeper.Query
	reported *watching.Reported
	last     map[lockkeeper.Ref]lockkeeper.Status // the live claims of the last moment
	over     map[lockkeeper.Ref]bool              // the ended claims of the last moment; nil before the first
}

func newFollower(q lockkeeper.Query) *follower {
	return &follower{query: q, reported: watching.NewReported(), last: make(map[lockkeeper.Ref]lockkeeper.Status)}
}

// report yields the differences between m and the moment before. It returns false if yield did.
func (f *follower) report(m *moment, yield func(lockkeeper.Status, error) bool) bool {
	wide := f.query
	wide.Meets = "" // a server may have forgotten the paths of an ended claim
	live, _ := pick(m.claims, f.query, m.change)
	_, tombstones := pick(m.claims, wide, m.change)
	over := make(map[lockkeeper.Ref]bool, len(tombstones))
	var news []lockkeeper.Status
	for _, st := range tombstones {
		over[st.Ref] = true
		before, known := f.last[st.Ref]
		if len(st.Grants) == 0 {
			st.Grants, st.Label, st.Inside, st.Fence = before.Grants, before.Label, before.Inside, before.Fence
		}
		if isNew := f.over != nil && !f.over[st.Ref]; (known || isNew) && f.query.Selects(&st) {
			news = append(news, st)
		}
	}
	f.over = over
	clear(f.last)
	for _, st := range live {
		f.last[st.Ref] = st
	}
	return f.reported.Changes(live, news, func(st lockkeeper.Status, err error) bool {
		if st.State == lockkeeper.Ended {
			st.Change = max(st.Change, m.change) // also if its end is not known
		}
		return yield(st, err)
	})
}
