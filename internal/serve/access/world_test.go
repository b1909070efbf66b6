package access_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// site is a gate in front of an engine, with identities that have tokens.
type site struct {
	*testing.T
	engine  lockkeeper.Engine
	gate    *access.Gate
	policy  access.Policy
	secrets map[string]string

	mu   sync.Mutex
	acts []access.Act
}

// newSite returns a site with a token for each identity that a rule names without a star.
func newSite(t *testing.T, p access.Policy, o access.Options) *site {
	t.Helper()
	s := &site{T: t, engine: memlock.New(), policy: p, secrets: make(map[string]string)}
	for _, r := range p.Rules {
		for _, who := range r.Who {
			if s.secrets[who] == "" && access.IdentityName(who) == nil {
				s.issue(who)
			}
		}
	}
	s.open(s.engine, o)
	t.Cleanup(func() { s.engine.Close() })
	return s
}

// open makes the gate.
func (s *site) open(e lockkeeper.Engine, o access.Options) {
	s.Helper()
	if err := s.policy.Check(); err != nil {
		s.Fatal(err)
	}
	o.Acted = func(a access.Act) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acts = append(s.acts, a)
	}
	s.gate = access.New(e, &s.policy, o)
}

// issue adds a token of the identity to the policy. It is valid from the next Set on.
func (s *site) issue(name string) string {
	secret, digest := access.NewToken()
	s.policy.Tokens = append(s.policy.Tokens, access.Token{Name: name, Digest: digest})
	s.secrets[name] = secret
	return secret
}

// act returns the latest Act.
func (s *site) act() access.Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.acts) == 0 {
		return access.Act{}
	}
	return s.acts[len(s.acts)-1]
}

func (s *site) pass(secret string) *access.Pass {
	s.Helper()
	p, err := s.gate.Admit(access.Credentials{Token: secret, From: "192.0.2.7:1"})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// user is a session of an identity.
type user struct {
	*site
	lockkeeper.Engine
	pass *access.Pass
	key  lockkeeper.Key
	last uint64
}

// user attaches a session of the identity.
func (s *site) user(name, session string) *user {
	s.Helper()
	p := s.pass(s.secrets[name])
	u := &user{site: s, Engine: p.Engine(), pass: p}
	if err := u.attach(session, time.Minute); err != nil {
		s.Fatal(err)
	}
	return u
}

func (u *user) attach(session string, ttl time.Duration, named ...uint64) error {
	lease, err := u.Attach(u.Context(), lockkeeper.Session{ID: session, TTL: ttl, Epoch: u.key.Epoch, Named: named}, nil)
	if err == nil {
		u.key = lease.Key
	}
	return err
}

// wants returns a claim of the paths. It waits if "wait" precedes the paths, and otherwise only
// tries.
func (u *user) wants(paths ...string) lockkeeper.Want {
	u.last++
	w := lockkeeper.Want{ID: u.last}
	if paths[0] == "wait" {
		w.Wait, paths = lockkeeper.Forever, paths[1:]
	}
	for _, p := range paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: lockkeeper.Path(p), Mode: lockkeeper.ModeExclusive})
	}
	return w
}

func (u *user) tries(w lockkeeper.Want) (lockkeeper.Status, error) {
	return u.Claim(u.Context(), u.key, w)
}

// takes claims the paths, and fails the test if the claim is refused or ended.
func (u *user) takes(paths ...string) lockkeeper.Status {
	u.Helper()
	st, err := u.tries(u.wants(paths...))
	if err != nil || st.State == lockkeeper.Ended {
		u.Fatalf("%v: %s (%s), %v", paths, st.State, st.Reason, err)
	}
	return st
}

func (u *user) ends(e lockkeeper.Ending) error { return u.End(u.Context(), u.key, e) }

func (u *user) releases(id uint64) {
	u.Helper()
	if err := u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
		u.Error(err)
	}
}

// lists returns the references of the claims that the user sees.
func (u *user) lists(q lockkeeper.Query) (refs []string) {
	u.Helper()
	for st, err := range u.List(u.Context(), q) {
		if err != nil {
			u.Error(err)
			return nil
		}
		refs = append(refs, st.Ref.String())
	}
	return refs
}

// is fails the test unless err matches target.
func (s *site) is(what string, err, target error) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Errorf("%s: %v, want %v", what, err, target)
	}
}

func rule(who, may, path string) access.Rule {
	return access.Rule{Who: []string{who}, May: []access.Verb{access.Verb(may)}, Paths: []string{path}}
}
