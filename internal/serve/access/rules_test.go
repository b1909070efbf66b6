package access_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A rule covers its path and all below it, and no path that only looks similar.
func TestRuleCoversPathAndAllBelow(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "a/"), rule("ci", "lock", "/deep//b"),
		rule("ci", "look", "z"), rule("ops", "lock", "*")}}, access.Options{})
	u := s.user("ci", "s")
	for _, c := range []struct {
		paths string // separated by blanks
		want  error
	}{
		{"a", nil}, {"a/x", nil}, {"a/x/y", nil}, {"deep/b", nil}, {"deep/b/c a", nil},
		{"ab", lockkeeper.ErrDenied}, {"a-b", lockkeeper.ErrDenied}, {"deep", lockkeeper.ErrDenied},
		{"deep/bb", lockkeeper.ErrDenied},
		{"b", lockkeeper.ErrDenied}, {"z", lockkeeper.ErrDenied}, {"a b", lockkeeper.ErrDenied}, {"A", lockkeeper.ErrDenied},
		{"x/a", lockkeeper.ErrDenied},
		{"a/../b", lockkeeper.ErrInvalid}, {"a/", lockkeeper.ErrInvalid}, {"/a", lockkeeper.ErrInvalid},
		{"a//b", lockkeeper.ErrInvalid}, {"a/./b", lockkeeper.ErrInvalid},
		{"a/\x00", lockkeeper.ErrInvalid}, {"a%2f..%2fb", lockkeeper.ErrDenied}, {"*", lockkeeper.ErrDenied},
	} {
		st, err := u.tries(u.wants(strings.Fields(c.paths)...))
		if !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("%q: %v, want %v", c.paths, err, c.want)
		}
		if err == nil {
			u.releases(st.Ref.ID)
		}
	}
	if claims, waiting, _, paths := s.gate.Usage("ci"); claims+waiting+paths != 0 {
		t.Errorf("%d claims, %d waiting, %d paths count after all were released or refused", claims, waiting, paths)
	}
	ops := s.user("ops", "s")
	ops.takes("anything", "a/x")
	_, err := u.tries(u.wants("prod/db"))
	for _, word := range []string{"ci", "lock", "prod/db", "below a, deep/b"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the denial %q does not say %q", err, word)
		}
	}
	if a := s.act(); a.Identity != "ci" || a.Verb != access.Lock || a.Path != "prod/db" || a.Ref.Session != "ci:s" ||
		a.From != "192.0.2.7:1" || !errors.Is(a.Err, lockkeeper.ErrDenied) {
		t.Errorf("Acted gets %+v", a)
	}
}

// Rules with random paths allow exactly the paths that Path.Covers covers.
func TestRulesAgreeWithCovers(t *testing.T) {
	r := testmode.Rand(t)
	some := func() string {
		p := string("ab"[r.IntN(2)])
		for r.IntN(3) > 0 {
			p += "/" + string("ab"[r.IntN(2)])
		}
		return p
	}
	for range 2000 {
		var paths []string
		for range 1 + r.IntN(3) {
			paths = append(paths, some())
		}
		at := lockkeeper.Path(some())
		want := slices.ContainsFunc(paths, func(p string) bool { return lockkeeper.Path(p).Covers(at) })
		if got := access.Allows([]string{"*"}, paths, "ci", at); got != want {
			t.Fatalf("%v allow %s: %t, want %t", paths, at, got, want)
		}
	}
}

// No identity can act for the session or claim of another one, whatever ids it sends. The owner
// keeps its claims.
func TestIdentityCannotActForAnother(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("eve", "lock", "*"),
		rule("c", "lock", "*")}}, access.Options{})
	owner := s.user("ci", "build")
	owner.takes("db")
	refused := owner.wants("db/1")
	for range 2 { // the first answer must not share memory with the engine's state
		st, err := owner.tries(refused)
		if err != nil || len(st.Blockers) != 1 || st.Blockers[0].Ref.String() != "build.1" {
			t.Errorf("the owner gets the blockers %+v (%v), want its claim under its own name", st.Blockers, err)
		}
	}
	for _, name := range []string{"eve", "c"} {
		eve := s.user(name, "other")
		for _, session := range []string{"ci:build", "build", ":ci:build", "i:build", "eve:other"} {
			key := lockkeeper.Key{Session: session, Epoch: owner.key.Epoch}
			_, attached := eve.Attach(t.Context(), lockkeeper.Session{
				ID:    session,
				TTL:   time.Minute,
				Epoch: owner.key.Epoch,
			}, nil)
			_, renewed := eve.Renew(t.Context(), key)
			_, claimed := eve.Claim(t.Context(), key, eve.wants("x"))
			_, amended := eve.Claim(t.Context(), key, lockkeeper.Want{
				ID:       1,
				Revision: 1,
				Targets:  owner.wants("db").Targets,
				Priority: 1,
			})
			released := eve.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
			left := eve.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Leave})
			for i, err := range []error{attached, renewed, claimed, amended, released, left} {
				if strings.Contains(session, ":") {
					s.is(fmt.Sprint(session, " ", i), err, lockkeeper.ErrInvalid)
				} else if i == 1 || i == 2 {
					// eve's own session of that name has another epoch.
					s.is(fmt.Sprint(session, " ", i), err, lockkeeper.ErrSession)
				}
			}
		}
		_, err := eve.Claim(t.Context(), eve.key, lockkeeper.Want{
			ID:      77,
			Targets: owner.wants("y").Targets,
			Inside:  lockkeeper.Ref{Session: "ci:build", ID: 1},
		})
		s.is("inside another's claim", err, lockkeeper.ErrDenied)
		if refs := eve.lists(lockkeeper.Query{}); len(refs) != 0 {
			t.Errorf("%s sees %v, want nothing", name, refs)
		}
		s.is("a revocation without a rule", eve.ends(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   lockkeeper.Ref{Session: "ci:build", ID: 1},
			Force: true,
		}), lockkeeper.ErrDenied)
		st, err := eve.tries(eve.wants("db/2"))
		if err != nil || len(st.Blockers) != 1 || st.Blockers[0].Ref.String() != "ci:build.1" {
			t.Errorf("%s gets the blockers %+v (%v), want the owner's claim", name, st.Blockers, err)
		}
	}
	if lease, err := owner.Renew(t.Context(), owner.key); err != nil || lease.Key.Session != "build" {
		t.Errorf("the owner's renewal: %+v, %v", lease.Key, err)
	}
	if refs := owner.lists(lockkeeper.Query{Ref: lockkeeper.Ref{Session: "build", ID: 1}}); len(refs) != 1 {
		t.Error("the owner does not hold it any more")
	}
}

// A list shows the own claims, and those below a path that the identity may look at.
func TestListShowsOwnAndPermittedClaims(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{
		rule("ci", "lock", "*"), rule("ops", "lock", "*"), rule("ops", "freeze", "*"), rule("eye", "look", "db"),
		rule("all", "look", "*"), rule("all", "lock", "*")}}, access.Options{})
	ci, ops, eye, all := s.user("ci", "s"), s.user("ops", "s"), s.user("eye", "e"), s.user("all", "s")
	ci.takes("db/1")
	ci.takes("dbx")
	ops.takes("site", "db/2")
	all.takes("own")
	freeze := ops.wants("db/3")
	freeze.Freeze = time.Minute
	if _, err := ops.tries(freeze); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		by   *user
		q    lockkeeper.Query
		want string
	}{
		{ci, lockkeeper.Query{}, "s.1 s.2"},
		{ci, lockkeeper.Query{Session: "s"}, "s.1 s.2"},
		{ci, lockkeeper.Query{Session: "ops:s"}, ""},
		{ci, lockkeeper.Query{Ref: lockkeeper.Ref{Session: "ops:s", ID: 1}}, ""},
		{ops, lockkeeper.Query{}, "s.1 s.2"},
		{eye, lockkeeper.Query{}, "ci:s.1 ops:s.1 ops:s.2"},
		{eye, lockkeeper.Query{Meets: "site"}, "ops:s.1"},
		{eye, lockkeeper.Query{Ref: lockkeeper.Ref{Session: "ops:s", ID: 1}}, "ops:s.1"},
		{eye, lockkeeper.Query{Session: "s"}, ""},
		{all, lockkeeper.Query{}, "ci:s.1 ci:s.2 ops:s.1 s.1 ops:s.2"},
		{all, lockkeeper.Query{Session: "all:s"}, "s.1"},
	} {
		if got := strings.Join(c.by.lists(c.q), " "); got != c.want {
			t.Errorf("%s lists %+v: %s, want %s", c.by.pass.Name(), c.q, got, c.want)
		}
	}
	if _, err := ci.Attach(t.Context(), lockkeeper.Session{ID: "", TTL: time.Minute},
		nil); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a session without an id: %v, want invalid", err)
	}
	long := strings.Repeat("s", lockkeeper.MaxSessionID-len("ci:"))
	if _, err := ci.Attach(t.Context(), lockkeeper.Session{ID: long, TTL: time.Minute}, nil); err != nil {
		t.Errorf("a session with the longest id: %v", err)
	}
	_, err := ci.Attach(t.Context(), lockkeeper.Session{ID: long + "s", TTL: time.Minute}, nil)
	if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "126 bytes: at most 125") {
		t.Errorf("a session with a longer id: %v, want invalid", err)
	}

	everything := ops.wants("x")
	everything.Targets[0].Path, everything.Freeze = lockkeeper.Root, time.Minute
	if _, err := ops.tries(everything); err != nil {
		t.Fatal(err)
	}
	for by, want := range map[*user]bool{ci: false, ops: true, eye: true, all: true} {
		seen := false
		for st := range by.List(t.Context(), lockkeeper.Query{}) {
			seen = seen || st.State == lockkeeper.Freezing && st.Grants[0].Path == lockkeeper.Root
		}
		if seen != want {
			t.Errorf("%s sees the freeze of everything: %t, want %t", by.pass.Name(), seen, want)
		}
	}
}

// Operators may revoke and freeze only where the rules allow it, and each attempt is reported to
// Options.Acted.
func TestOperatorsObeyRulesAndAreReported(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{
		rule("ci", "lock", "*"), rule("ops", "revoke", "db"), rule("ops", "freeze", "db"), rule("ops", "look", "db")}},
		access.Options{})
	ci, ops := s.user("ci", "s"), s.user("ops", "o")
	for _, paths := range []string{"db/1", "site", "db/2 site2"} {
		ci.takes(strings.Fields(paths)...)
	}
	revoke := func(session string, id uint64) error {
		return ops.ends(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   lockkeeper.Ref{Session: session, ID: id},
			Force: true,
			Label: lockkeeper.Label{Note: "why"},
		})
	}
	if err := revoke("ci:s", 1); err != nil {
		t.Error(err)
	}
	if a := s.act(); a.Verb != access.Revoke || a.Path != "db/1" || a.Ref.String() != "ci:s.1" || a.Label.Note != "why" ||
		!a.Force || a.Err != nil || a.Identity != "ops" {
		t.Errorf("Acted gets %+v", a)
	}
	s.is("a claim that it may not see", revoke("ci:s", 2), lockkeeper.ErrNotHeld)
	s.is("a claim that never existed", revoke("ci:s", 99), lockkeeper.ErrNotHeld)
	s.is("a claim of which it may revoke a part only", revoke("ci:s", 3), lockkeeper.ErrDenied)
	s.is("an empty ref", revoke("", 0), lockkeeper.ErrNotHeld)
	for _, who := range []string{"ops:o", "s"} {
		err := ci.ends(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: who, ID: 2}})
		if !errors.Is(err, lockkeeper.ErrDenied) ||
			!strings.Contains(err.Error(), "ci may not revoke "+who+".2: no rule allows it to revoke anything") {
			t.Errorf("revoking with the right to lock only: %v, want a denial that names the claim", err)
		}
	}
	if refs := ci.lists(lockkeeper.Query{}); !slices.Equal(refs, []string{"s.2", "s.3"}) {
		t.Errorf("held are %v, want s.2 and s.3", refs)
	}

	freeze := func(u *user, path string) error {
		w := u.wants(path)
		w.Freeze = time.Hour
		_, err := u.tries(w)
		return err
	}
	thaw := func(u *user, path lockkeeper.Path) error {
		return u.ends(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: path})
	}
	s.is("freezing elsewhere", freeze(ops, "site"), lockkeeper.ErrDenied)
	s.is("freezing above", freeze(ci, "db"), lockkeeper.ErrDenied)
	if err := freeze(ops, string(lockkeeper.Root)); !errors.Is(err, lockkeeper.ErrDenied) ||
		!strings.Contains(err.Error(), "ops may not freeze everything") {
		t.Errorf("freezing everything with the right to freeze some paths: %v", err)
	}
	s.is("thawing everything", thaw(ops, lockkeeper.Root), lockkeeper.ErrDenied)
	if err := freeze(ops, "db/x"); err != nil || s.act().Verb != access.Freeze || s.act().Err != nil {
		t.Errorf("a freeze: %v, reported as %+v", err, s.act())
	}
	s.is("thawing with the right to lock only", thaw(ci, "db/x"), lockkeeper.ErrDenied)
	s.is("thawing elsewhere", thaw(ops, "site"), lockkeeper.ErrDenied)
	s.is("thawing nothing", thaw(ops, "a/../b"), lockkeeper.ErrInvalid)
	if err := thaw(ops, "db/x"); err != nil || s.act().Verb != access.Thaw || s.act().Path != "db/x" ||
		s.act().Err != nil {
		t.Errorf("a thaw: %v, reported as %+v", err, s.act())
	}
	if _, err := ops.pass.Drain("no right"); !errors.Is(err, lockkeeper.ErrDenied) ||
		!strings.Contains(err.Error(), "ops may not drain this server") || s.act().Verb != access.Drain {
		t.Errorf("a drain: %v, reported as %+v", err, s.act())
	}
	if _, draining := s.gate.Draining(); draining {
		t.Error("it drains")
	}
}

// The name that an identity gets for a session maps back to that session.
func TestNamesMapBackToSessions(t *testing.T) {
	for session, want := range map[string]string{
		"ci:s":   "s",
		"ci:":    "",
		"ops:s":  "ops:s",
		"ops:":   "ops:",
		"s":      ":s",
		":s":     "::s",
		"":       "",
		"c:i":    "c:i",
		"ci":     ":ci",
		"ci:a.b": "a.b",
	} {
		out, in := access.NameInAndOut("ci", session)
		if out != want || in != session && session != "ci:" {
			t.Errorf("%q is named %q, which maps back to %q; want the name %q", session, out, in, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("ci", "ci:s")
	f.Add("ci", ":x:y")
	f.Add("ci", "ci:web:s")
	f.Fuzz(func(t *testing.T, identity, session string) {
		if access.IdentityName(identity) != nil || session == "" || session == identity+":" {
			return
		}
		if out, in := access.NameInAndOut(identity, session); in != session {
			t.Errorf("%q is named for %q as %q, which maps back to %q", session, identity, out, in)
		}
	})
}
