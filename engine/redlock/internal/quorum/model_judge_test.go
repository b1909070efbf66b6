package quorum

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
)

// A judge watches that the promises hold after every step.
type judge struct {
	wrong   string // the first broken promise
	grants  map[string][]grantRecord
	highest uint64
	seen    map[string]int // how often rare things happened
}

type grantRecord struct {
	ref         string
	fence       uint64
	answered    int // step
	unconfirmed bool
}

func (j *judge) init() { j.grants, j.seen = map[string][]grantRecord{}, map[string]int{} }

func (j *judge) fail(format string, args ...any) {
	if j.wrong == "" {
		j.wrong = fmt.Sprintf(format, args...)
	}
}

// granted judges a grant: the fences of a path rise. No two grants have one fence, and a grant that
// was answered before another one was requested has the lower fence. At factor 1, fences rise in
// the order of the grants, whenever they were requested.
func (j *judge) granted(w *world, p *process, x *wish, st *lockkeeper.Status) {
	if st.Fence == 0 {
		j.fail("%s was granted without a fence", x.ref(p))
	}
	j.highest = max(j.highest, st.Fence)
	j.seen["grants"]++
	if st.Unconfirmed {
		j.seen["unconfirmed grants"]++
	}
	if x.want.Steal == lockkeeper.Take {
		j.seen["grants of thieves"]++
	}
	for _, path := range x.paths() {
		for _, g := range j.grants[path] {
			ordered := g.answered < x.requested || w.scope.factor1 && !w.scope.broken
			if g.fence == st.Fence || ordered && g.fence > st.Fence {
				j.fail("%s: %s was granted with fence %d after %s with fence %d", path, x.ref(p), st.Fence, g.ref, g.fence)
			}
		}
		j.grants[path] = append(j.grants[path], grantRecord{x.ref(p), st.Fence, w.steps, st.Unconfirmed})
	}
}

// check judges the state of the world: no two clients act at once on one path. Only where a steal
// waits for less than the whole TTL, they may if the later grant was marked as unconfirmed.
func (j *judge) check(w *world) string {
	for i, m := range w.members {
		if err := m.server.Check(); err != nil {
			j.fail("server %d: %s", i, err)
		}
	}
	if w.scope.broken {
		return j.wrong
	}
	type actor struct {
		ref   string
		fence uint64
	}
	acting := map[string]actor{}
	for _, p := range w.processes {
		for _, x := range p.client.claims {
			if !w.acts(p, x) {
				continue
			}
			for _, path := range x.paths() {
				other, taken := acting[path]
				if taken && (w.scope.factor1 || !j.excused(path, other.fence, x.fence)) {
					j.fail("%s: %s with fence %d and %s with fence %d act at once", path, other.ref, other.fence, x.ref(p), x.fence)
				}
				if !taken || x.fence > other.fence {
					acting[path] = actor{x.ref(p), x.fence}
				}
			}
		}
	}
	return j.wrong
}

// excused reports whether one of two overlapping grants was marked as unconfirmed: the later one.
func (j *judge) excused(path string, a, b uint64) bool {
	for _, g := range j.grants[path] {
		if g.fence == max(a, b) {
			return g.unconfirmed
		}
	}
	return false
}
