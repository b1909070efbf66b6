package redlock

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// List implements lockkeeper.Engine. It merges what the servers say; see merge. An ended claim is
// known until its client has acknowledged the end, or its session ends. Watchers learn the reasons of
// ends from what the servers keep for them: see quorum.EndRecord.
//
// Status.Change of its statuses is a time: of a live claim that of its latest change, of an ended one
// that of the read. With Query.Follow, a watcher receives the difference to its last read. It may
// miss states in between, but never the last one of a claim.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return watching.List(ctx, q, e.list, e.follow)
}

func (e *Engine) list(ctx context.Context, q lockkeeper.Query) ([]lockkeeper.Status, error) {
	readings, err := e.read(ctx, onlySession(q), false)
	if err != nil {
		return nil, err
	}
	live, ended := pick(merge(readings), q, changeOf(readings))
	if q.Ref != (lockkeeper.Ref{}) {
		live = append(live, ended...)
	}
	return live, nil
}

// onlySession returns the session of which alone q selects claims; "" if there is none.
func onlySession(q lockkeeper.Query) string { return cmp.Or(q.Ref.Session, q.Session) }

// changeOf returns a number for Status.Change that rises with the time of a read: the median of the
// clocks of the servers.
func changeOf(readings []*reading) uint64 {
	var clocks []uint64
	for _, r := range readings {
		if r != nil {
			clocks = append(clocks, uint64(max(1, r.now)))
		}
	}
	slices.Sort(clocks)
	return clocks[(len(clocks)-1)/2]
}

// pick returns the live and the ended claims that q selects, the live ones in the order of R4. change
// is for ended ones.
func pick(claims []*seen, q lockkeeper.Query, change uint64) (live, ended []lockkeeper.Status) {
	for _, c := range claims {
		st, ok := c.status(q.Brief)
		switch {
		case !ok || !q.Selects(&st):
		case st.State == lockkeeper.Ended:
			st.Change = change
			ended = append(ended, st)
		default:
			st.Change = c.change(&st)
			live = append(live, st)
		}
	}
	slices.SortFunc(live, compare)
	slices.SortFunc(ended, compare)
	return live, ended
}

// compare orders holds before waiting claims, and each as the queue has them.
func compare(a, b lockkeeper.Status) int {
	if a.State != b.State {
		return cmp.Compare(b.State, a.State) // Held is above Waiting
	}
	if a.State == lockkeeper.Waiting && a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Ref.Session, b.Ref.Session),
		cmp.Compare(a.Ref.ID, b.Ref.ID))
}
