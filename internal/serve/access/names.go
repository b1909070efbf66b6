package access

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// names maps session ids between an identity and the engine. The zero value maps each id to itself,
// for a gate without a policy.
type names struct {
	prefix string // the identity and ":"
}

const separator = ":"

// own returns the engine's id of a session that the identity owns, or an ErrInvalid if the id could
// name a session of another identity.
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

// in returns the engine's id of a session that a query names.
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

// out returns the identity's id of a session of the engine; in is its reverse. An id that contains the
// separator, which a server without a policy accepts, keeps the prefix: else it would name a session of
// another identity.
func (n names) out(session string) string {
	if n.prefix == "" || session == "" {
		return session
	}
	if id, own := strings.CutPrefix(session, n.prefix); own && !strings.Contains(id, separator) {
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

// status maps all references in st, and does not modify memory that st shares with others.
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

// err maps the references in the evidence of an engine's error.
func (n names) err(err error) error {
	if e, ok := err.(*lockkeeper.Error); ok && n.prefix != "" && len(e.Blocked) > 0 {
		mapped := *e
		mapped.Blocked = n.blockers(e.Blocked)
		return &mapped
	}
	return err
}

// Owner returns the identity that owns a session, given the engine's id; "" if none does. Without a
// policy an id names no identity.
func Owner(session string) string {
	owner, _, found := strings.Cut(session, separator)
	if !found {
		return ""
	}
	return owner
}
