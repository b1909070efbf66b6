package rights

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/table"
)

// A usage is how much each identity has. The zero value has not counted the table yet.
type usage struct {
	of map[string]*identity // by name; nil: not counted

	// What is on its way to the table.
	claims   map[lockkeeper.Ref]*inFlight
	sessions map[string]*inFlight
}

// An inFlight is a claim or a session that the table may get by calls on their way.
type inFlight struct {
	calls int
	count count
	open  bool // a session that was open when the first of the calls was permitted
}

// identity is what one identity has in the table, and on its way to it.
type identity struct {
	sessions map[string]*session // also some that have ended: prune removes them
	sweepAt  int                 // number of sessions at which prune is worth its cost
	count                        // of the claims of all sessions, and of what is on its way
	coming   int                 // sessions on their way
}

const smallSweep = 64

type session struct {
	claims map[uint64]count // in the table
	coming int              // on their way
}

// A count is for how much claims count.
type count struct{ claims, waiting, paths int }

func (c *count) add(n int, d count) {
	c.claims += n * d.claims
	c.waiting += n * d.waiting
	c.paths += n * d.paths
}

// bounded reports whether a quota needs counting.
func bounded(q *limits.Quota) bool { return *q != limits.Quota{} }

// identity returns what the identity has.
func (u *usage) identity(t *table.Table, name string) *identity {
	if u.of == nil {
		u.read(t)
	}
	return u.named(name)
}

func (u *usage) named(name string) *identity {
	i := u.of[name]
	if i == nil {
		i = &identity{sessions: make(map[string]*session), sweepAt: smallSweep}
		u.of[name] = i
	}
	return i
}

func (i *identity) session(id string) *session {
	s := i.sessions[id]
	if s == nil {
		s = &session{claims: make(map[uint64]count)}
		i.sessions[id] = s
	}
	return s
}

// read counts the table.
func (u *usage) read(t *table.Table) {
	u.of = make(map[string]*identity)
	u.claims, u.sessions = make(map[lockkeeper.Ref]*inFlight), make(map[string]*inFlight)
	snap := t.Snapshot()
	for i := range snap.Sessions {
		id := snap.Sessions[i].ID
		u.named(access.Owner(id)).session(id)
	}
	for i := range snap.Claims {
		u.recount(t, snap.Claims[i].Ref)
	}
}

// follow counts what a command has changed in the table.
func (u *usage) follow(t *table.Table, c *table.Command) {
	if u.of == nil {
		return
	}
	switch c.Op {
	case table.Attach:
		if id := c.Session.ID; t.Open(id) {
			i := u.named(access.Owner(id))
			i.session(id)
			if len(i.sessions) >= i.sweepAt {
				u.prune(i, t)
				i.sweepAt = 2*len(i.sessions) + smallSweep
			}
		}
	case table.Claim:
		u.recount(t, lockkeeper.Ref{Session: c.Key.Session, ID: c.Want.ID})
	}
	for _, e := range t.Events() {
		if e.Ref != (lockkeeper.Ref{}) {
			u.recount(t, e.Ref)
		}
	}
}

// recount counts a claim as it is in the table now.
func (u *usage) recount(t *table.Table, ref lockkeeper.Ref) {
	name := access.Owner(ref.Session)
	i := u.named(name)
	st, found := t.Status(ref)
	lives := found && (st.State == lockkeeper.Waiting || st.State == lockkeeper.Held)
	s := i.sessions[ref.Session]
	if s == nil {
		if !lives {
			i.forgetIfEmpty(u, name)
			return
		}
		s = i.session(ref.Session)
	}
	i.add(-1, s.claims[ref.ID])
	delete(s.claims, ref.ID)
	if lives {
		now := count{claims: 1, paths: len(st.Grants)}
		if st.State == lockkeeper.Waiting {
			now.waiting = 1
		}
		s.claims[ref.ID] = now
		i.add(1, now)
		return
	}
	if !t.Open(ref.Session) && len(s.claims) == 0 && s.coming == 0 && u.sessions[ref.Session] == nil {
		delete(i.sessions, ref.Session)
		i.forgetIfEmpty(u, name)
	}
}

func (i *identity) forgetIfEmpty(u *usage, name string) {
	if len(i.sessions) == 0 && i.coming == 0 && i.count == (count{}) {
		delete(u.of, name)
	}
}

// attach counts a session that a call may open, or refuses it.
func (u *usage) attach(t *table.Table, name string, q limits.Quota, s *lockkeeper.Session) error {
	if !bounded(&q) {
		return nil
	}
	i := u.identity(t, name)
	if coming := u.sessions[s.ID]; coming != nil {
		coming.calls++ // a repeated call
		return nil
	}
	if t.Open(s.ID) { // it counts until the call arrives, because the call opens it again if it ends before
		i.session(s.ID)
		u.sessions[s.ID] = &inFlight{calls: 1, open: true}
		return nil
	}
	if q.Sessions > 0 && len(i.sessions)+i.coming >= q.Sessions {
		u.prune(i, t)
		if has := len(i.sessions) + i.coming; has >= q.Sessions {
			return overdrawn("%s has %d sessions in the cluster, and its quota is %d: end one first", name, has, q.Sessions)
		}
	}
	i.coming++
	u.sessions[s.ID] = &inFlight{calls: 1}
	return nil
}

// prune forgets the sessions that have ended, with their claims.
func (u *usage) prune(i *identity, t *table.Table) {
	for id, s := range i.sessions { // order does not matter: each by itself
		if !t.Open(id) && s.coming == 0 && (u.sessions[id] == nil || !u.sessions[id].open) {
			for _, c := range s.claims { // order does not matter: a sum
				i.add(-1, c)
			}
			delete(i.sessions, id)
		}
	}
}

// claim counts a claim that a call may make, or refuses it. A freeze does not count.
func (u *usage) claim(t *table.Table, name string, q limits.Quota, c *table.Command) error {
	if !bounded(&q) || c.Want.Freeze > 0 {
		return nil
	}
	ref := lockkeeper.Ref{Session: c.Key.Session, ID: c.Want.ID}
	i := u.identity(t, name)
	if coming := u.claims[ref]; coming != nil {
		coming.calls++ // a repeated call
		return nil
	}
	s := i.sessions[ref.Session]
	if s == nil {
		s = new(session)
	}
	if _, there := s.claims[ref.ID]; there {
		return nil
	}
	more := count{claims: 1, paths: len(c.Want.Targets)}
	if c.Want.Wait != 0 {
		more.waiting = 1
	}
	for _, bound := range []struct {
		what           string
		has, more, max int
	}{
		{"claims", i.claims, more.claims, q.Claims},
		{"waiting claims", i.waiting, more.waiting, q.Waiting},
		{"paths in claims", i.paths, more.paths, q.Paths},
		{"claims of this session", len(s.claims) + s.coming, 1, q.SessionClaims},
	} {
		if bound.max > 0 && bound.more > 0 && bound.has+bound.more > bound.max {
			return overdrawn("%s has %d %s in the cluster, needs %d more, and its quota is %d: release some first", name,
				bound.has, bound.what, bound.more, bound.max)
		}
	}
	u.claims[ref] = &inFlight{calls: 1, count: more}
	i.session(ref.Session).coming++
	i.add(1, more)
	return nil
}

// arrived ends the way of a permitted call: it is in the table now, or was dropped. Calls that were not
// counted on their way change nothing.
func (u *usage) arrived(c *table.Command) {
	switch c.Op {
	case table.Attach:
		if coming := u.sessions[c.Session.ID]; coming != nil {
			if coming.calls--; coming.calls == 0 {
				delete(u.sessions, c.Session.ID)
				if !coming.open {
					u.named(access.Owner(c.Session.ID)).coming--
				}
			}
		}
	case table.Claim:
		ref := lockkeeper.Ref{Session: c.Key.Session, ID: c.Want.ID}
		if coming := u.claims[ref]; coming != nil {
			if coming.calls--; coming.calls == 0 {
				delete(u.claims, ref)
				i := u.named(access.Owner(ref.Session))
				i.add(-1, coming.count)
				i.session(ref.Session).coming--
			}
		}
	}
}

func overdrawn(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: fmt.Sprintf(format, args...)}
}
