package access

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// names maps session ids between an identity and the engine. The zero value changes
// nothing, for a gate at which there are no identities.
type names struct {
	prefix string // the identity and ":"
}

const separator = ":"

// own is the engine's id of a session that the identity calls its own; an ErrInvalid
// if that could be another's.
func (n names) own(session string) (string, error) {
	if n.prefix == "" {
		return session, nil
	}
	if strings.Contains(session, separator) {
		return "", lockkeeper.Invalid("session id %q: %q is not allowed in it, since that ends the name of an identity",
			session, separator)
	}
	return n.prefix + session, nil
}

// in is the engine's id of a session that is only asked about.
func (n names) in(session string) string {
	switch at := strings.Index(session, separator); {
	case n.prefix == "" || session == "":
		return session
	case at < 0:
		return n.prefix + session
	case at == 0:
		return session[len(separator):]
	}
	return session
}

// out is what the identity calls the engine's session; in is its reverse.
func (n names) out(session string) string {
	if n.prefix == "" || session == "" {
		return session
	}
	if id, own := strings.CutPrefix(session, n.prefix); own {
		return id
	}
	if strings.Index(session, separator) > 0 {
		return session
	}
	return separator + session
}

// owns reports whether the engine's session is the identity's own.
func (n names) owns(session string) bool { return strings.HasPrefix(session, n.prefix) }

func (n names) query(q lockkeeper.Query) lockkeeper.Query {
	q.Session = n.in(q.Session)
	q.Ref.Session = n.in(q.Ref.Session)
	return q
}

// status maps all refs in st, and leaves alone what st shares with others.
func (n names) status(st lockkeeper.Status) lockkeeper.Status {
	if n.prefix == "" {
		return st
	}
	st.Ref.Session, st.Inside.Session = n.out(st.Ref.Session), n.out(st.Inside.Session)
	if st.Asked != nil {
		asked := *st.Asked
		asked.By.Session = n.out(asked.By.Session)
		st.Asked = &asked
	}
	st.Blockers = n.blockers(st.Blockers)
	return st
}

func (n names) blockers(all []lockkeeper.Blocker) []lockkeeper.Blocker {
	all = slices.Clone(all)
	for i := range all {
		all[i].Ref.Session = n.out(all[i].Ref.Session)
	}
	return all
}

func (n names) statuses(all []lockkeeper.Status) []lockkeeper.Status {
	if n.prefix == "" || len(all) == 0 {
		return all
	}
	mapped := make([]lockkeeper.Status, len(all))
	for i := range all {
		mapped[i] = n.status(all[i])
	}
	return mapped
}

func (n names) lease(l lockkeeper.Lease) lockkeeper.Lease {
	l.Key.Session = n.out(l.Key.Session)
	l.Claims = n.statuses(l.Claims)
	return l
}

// err maps the evidence of an engine's error.
func (n names) err(err error) error {
	if e, ok := err.(*lockkeeper.Error); ok && n.prefix != "" && len(e.Blocked) > 0 {
		mapped := *e
		mapped.Blocked = n.blockers(e.Blocked)
		return &mapped
	}
	return err
}

// Owner is the identity that a session of the engine belongs to, by its id there; ""
// if that has none. It is for gates with a policy: without one an id means nothing.
func Owner(session string) string {
	owner, _, found := strings.Cut(session, separator)
	if !found {
		return ""
	}
	return owner
}
