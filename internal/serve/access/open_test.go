package access_test

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// opens opens the session with a first claim. It returns lockkeeper.ErrNotBegun if the engine does not
// do that by one call.
func (u *user) opens(session string, ttl time.Duration, w lockkeeper.Want) error {
	engine := u.Engine
	if b, ok := engine.(begins); ok {
		engine = b.Engine
	}
	group, ok := engine.(lockkeeper.GroupCommitter)
	if !ok {
		return lockkeeper.ErrNotBegun
	}
	lease, commit, err := group.BeginOpen(u.Context(), lockkeeper.Session{ID: session, TTL: ttl}, w, nil)
	if err == lockkeeper.ErrNotBegun {
		return err
	}
	if err = finished(commit, err); err == nil {
		u.key = lease.Key
	}
	return err
}

// opener returns an identity's view of the engine, without a session.
func (s *site) opener(name string) *user {
	p := s.pass(s.secrets[name])
	return &user{site: s, pass: p, Engine: p.Engine()}
}

// A session that opens with its claim counts as both, under the names of the identity, and its end
// gives both back.
func TestOpenedSessionCountsWithItsClaim(t *testing.T) {
	s := newSite(t, limited(access.Quota{Claims: 2, Sessions: 2}), access.Options{})
	ci := s.opener("ci")
	if err := ci.opens("c", time.Minute, ci.wants("db")); err != nil {
		t.Fatal(err)
	}
	s.counts(1, 0, 1, 1)
	if refs := ci.lists(lockkeeper.Query{}); len(refs) != 1 || refs[0] != "c.1" || ci.key.Session != "c" {
		t.Errorf("the identity has %v by the key %v", refs, ci.key)
	}
	if err := ci.ends(lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	s.counts(0, 0, 0, 0)
}

// A refusal to open leaves no session, neither at the engine nor in the counts, and reports what is
// denied once.
func TestRefusedOpenLeavesNothing(t *testing.T) {
	s := newSite(t, limited(access.Quota{Claims: 1}), access.Options{})
	ci := s.opener("ci")
	w := ci.wants("db")
	w.Inside = lockkeeper.Ref{Session: "ops:x", ID: 1}
	s.is("a claim inside another's", ci.opens("c", time.Minute, w), lockkeeper.ErrDenied)
	if n := len(s.acts); n != 1 || s.act().Verb != access.Lock {
		t.Errorf("%d acts are reported, the last one %+v", n, s.act())
	}
	s.counts(0, 0, 0, 0)
	w = ci.wants("db")
	if err := ci.opens("c", time.Minute, w); err != nil {
		t.Fatal(err)
	}
	s.is("a claim beyond the quota", s.opener("ci").opens("d", time.Minute, ci.wants("disk")), lockkeeper.ErrNotBegun)
	s.is("a session that is open", s.opener("ci").opens("c", time.Minute, w), lockkeeper.ErrSession)
	s.counts(1, 0, 1, 1)
	s.gate.Drain("an update")
	s.is("while the gate drains", s.opener("ci").opens("e", time.Minute, ci.wants("disk")), lockkeeper.ErrNotBegun)
	s.counts(1, 0, 1, 1)
	if sessions, claims := s.gate.Remembered("ci"); sessions != 1 || claims != 1 {
		t.Errorf("%d sessions and %d claims are remembered", sessions, claims)
	}
}
