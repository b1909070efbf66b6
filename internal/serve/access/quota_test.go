package access_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// limited returns a policy in which ci has the quota.
func limited(q access.Quota) access.Policy {
	q.Who = []string{"ci"}
	return access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("ops", "lock", "*"),
		rule("ops", "revoke", "*")}, Quotas: []access.Quota{q}}
}

// capped returns bounds with these totals for all identities; 0 is no bound.
func capped(claims, sessions int) *limits.Bounds {
	b := limits.DefaultBounds()
	b.Total[limits.Claims], b.Total[limits.Sessions] = claims, sessions
	return &b
}

// A lower longest TTL takes nothing away: a session that has more is attached again by a client that lost its
// connection, and its claims are released.
func TestLowerTTLTakesNoSessionAway(t *testing.T) {
	s := newSite(t, limited(access.Quota{LongestTTL: duration.Span(time.Hour)}), access.Options{})
	one := s.user("ci", "one")
	if err := one.attach("one", time.Hour); err != nil {
		t.Fatal(err)
	}
	one.takes("a")
	s.policy.Quotas = limited(access.Quota{LongestTTL: duration.Span(time.Minute)}).Quotas
	s.gate.Set(&s.policy)
	if err := one.attach("one", time.Hour); err != nil {
		t.Errorf("attached again: %v", err)
	}
	for _, refused := range []error{one.attach("one", time.Hour+1), one.attach("one", 0), one.attach("new", time.Hour)} {
		if !errors.Is(refused, lockkeeper.Quota) {
			t.Errorf("more than it has: %v", refused)
		}
	}
	one.releases(1)
}

// counts fails the test unless the usage of ci has these numbers.
func (s *site) counts(claims, waiting, sessions, paths int) {
	s.Helper()
	c, w, n, p := s.gate.Usage("ci")
	if c != claims || w != waiting || n != sessions || p != paths {
		s.Errorf("%d claims, %d waiting, %d sessions, %d paths count, want %d, %d, %d, %d", c, w, n, p, claims, waiting,
			sessions, paths)
	}
}

// A call beyond a quota is refused with a message that names the quota. The end of a claim or
// session frees its quota, however it ends.
func TestQuotasAreEnforcedAndFreed(t *testing.T) {
	top := 5
	s := newSite(t, limited(access.Quota{
		Claims:          3,
		Waiting:         1,
		Sessions:        2,
		Paths:           4,
		LongestTTL:      duration.Span(time.Hour),
		HighestPriority: &top,
	}), access.Options{})
	refused := func(err error, words string) {
		t.Helper()
		if !errors.Is(err, lockkeeper.Quota) || !errors.Is(err, lockkeeper.ErrDenied) ||
			!strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "ci") {
			t.Errorf("%v, want a refusal by quota that says %q", err, words)
		}
	}
	claims := func(u *user, w lockkeeper.Want) error { _, err := u.tries(w); return err }
	ops, one, two := s.user("ops", "s"), s.user("ci", "one"), s.user("ci", "two")
	ops.takes("busy")
	s.counts(0, 0, 2, 0)
	three := &user{site: s, Engine: one.Engine}
	refused(three.attach("three", time.Minute), "2 sessions and asks for 1 more")
	if err := one.attach("one", time.Minute); err != nil {
		t.Errorf("attached again: %v", err)
	}
	refused(one.attach("one", time.Hour+1), "TTL 1h0m0.000000001s is longer than 1h")
	refused(one.attach("one", 0), "without end is longer than 1h")
	high := one.wants("x")
	high.Priority = 6
	refused(claims(one, high), "priority 6 is higher than 5")

	refused(claims(one, one.wants("a", "b", "c", "d", "e")), "5 paths are more than 4, the most that ci may have")
	one.takes("a", "b")
	waiting := one.takes("wait", "busy").Ref.ID
	s.counts(2, 1, 2, 3)
	refused(claims(two, two.wants("wait", "c")), "1 claims that wait and asks for 1 more")
	refused(claims(two, two.wants("c", "d")), "3 paths and asks for 2 more: 4 are the most")
	two.takes("c")
	refused(claims(two, two.wants("d")), "3 claims and asks for 1 more: 3 are the most")
	if a := s.act(); a.Err != nil {
		t.Errorf("Acted gets a refusal by quota: %+v", a)
	}
	again, err := two.tries(lockkeeper.Want{ID: 3, Targets: two.wants("c").Targets})
	if err != nil || again.State != lockkeeper.Held {
		t.Errorf("a repetition at the quota: %s, %v", again.State, err)
	}
	ops.takes("unharmed")
	ops.releases(1) // this grants the waiting claim of one
	s.counts(3, 0, 2, 4)
	one.releases(waiting)
	one.releases(2 + 1) // the claim of a and b: two ids were used by refused claims
	s.counts(1, 0, 2, 1)
	if st, err := one.tries(one.wants("unharmed")); err != nil || st.State != lockkeeper.Ended {
		t.Errorf("%s, %v, want it taken", st.State, err)
	}
	s.counts(1, 0, 2, 1)
	if err := ops.ends(lockkeeper.Ending{
		Kind:  lockkeeper.Revoke,
		Ref:   lockkeeper.Ref{Session: "ci:two", ID: 3},
		Force: true,
	}); err != nil {
		t.Error(err)
	}
	s.counts(0, 0, 2, 0)
	two.takes("c")
	if err := two.attach("two", time.Minute); err != nil { // names no claims, so they end
		t.Error(err)
	}
	s.counts(0, 0, 2, 0)
	two.takes("c")
	if err := two.ends(lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Error(err)
	}
	s.counts(0, 0, 1, 0)
	if err := three.attach("three", time.Minute); err != nil {
		t.Error(err)
	}
	if sessions, claims := s.gate.Remembered("ci"); sessions != 2 || claims != 0 {
		t.Errorf("%d sessions and %d claims are remembered, want 2 and 0", sessions, claims)
	}
}

// All credentials of an identity share one quota: the first in the policy that names it.
func TestCredentialsOfIdentityShareQuota(t *testing.T) {
	p := limited(access.Quota{Claims: 2})
	p.Quotas = append(p.Quotas, access.Quota{Who: []string{"*"}, Claims: 1, Sessions: 1})
	p.Certificates = true
	s := newSite(t, p, access.Options{})
	one := s.user("ci", "one")
	s.issue("ci")
	s.gate.Set(&s.policy)
	two := s.user("ci", "two")
	one.takes("a")
	two.takes("b")
	byCertificate, err := s.gate.Admit(access.Credentials{Certificate: certificate("ci", time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	two.Engine = byCertificate.Engine()
	_, err = two.tries(two.wants("c"))
	s.is("a third claim", err, lockkeeper.Quota)
	s.counts(2, 0, 2, 2)
	s.policy.Quotas[0].Claims = 1 // ci has two claims, and keeps them
	s.gate.Set(&s.policy)
	two.releases(1)
	_, err = two.tries(two.wants("c"))
	s.is("a second claim under a lower quota", err, lockkeeper.Quota)
	one.releases(1)
	two.takes("c")
}

// Sessions that were not renewed free their quota when another one needs it.
func TestExpiredSessionsFreeTheirQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, limited(access.Quota{Claims: 2, Sessions: 2}), access.Options{})
		dead, alive := s.user("ci", "dead"), s.user("ci", "alive")
		dead.takes("a")
		alive.takes("b")
		time.Sleep(40 * time.Second)
		if _, err := alive.Renew(t.Context(), alive.key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		next := s.user("ci", "next")
		next.takes("a")
		_, err := next.tries(next.wants("c"))
		s.is("a third claim", err, lockkeeper.Quota)
		s.is("a third session", (&user{site: s, Engine: next.Engine}).attach("third", time.Minute), lockkeeper.Quota)
		s.counts(2, 0, 2, 2)
	})
}

// The total bounds apply to all identities together, and to all clients where there is no policy.
func TestTotalBoundsApplyToAllIdentities(t *testing.T) {
	s := newSite(t, limited(access.Quota{}), access.Options{Limits: capped(2, 2)})
	ci, ops := s.user("ci", "s"), s.user("ops", "s")
	ci.takes("a")
	ops.takes("b")
	_, err := ops.tries(ops.wants("c"))
	s.is("a third claim", err, lockkeeper.Quota)
	s.is("a third session", (&user{site: s, Engine: ops.Engine}).attach("third", time.Minute), lockkeeper.Quota)
	s.counts(1, 0, 1, 1)
	if claims, sessions := s.gate.Total(); claims != 2 || sessions != 2 {
		t.Errorf("%d claims and %d sessions count in total, want 2 and 2", claims, sessions)
	}
	ci.releases(1)
	ops.takes("c")
	_, err = ci.tries(ci.wants("wait", "d"))
	s.is("a third claim again", err, lockkeeper.Quota)
	s.counts(0, 0, 1, 0)
	s.is("a third session", ci.another("third"), lockkeeper.Quota)
	s.counts(0, 0, 1, 0)

	open := access.New(s.engine, nil, access.Options{Limits: capped(1, 1)})
	u := &user{site: s, Engine: engineOf(t, open, "")}
	if err := u.attach("x:y", time.Minute); err != nil {
		t.Fatal(err)
	}
	u.takes("d")
	_, err = u.tries(u.wants("e"))
	s.is("a second claim", err, lockkeeper.Quota)
	s.is("a second session", (&user{site: s, Engine: u.Engine}).attach("z", time.Minute), lockkeeper.Quota)
	u.releases(1)
	u.takes("e")
}

func TestQuotaBoundsClaimsOfOneSession(t *testing.T) {
	s := newSite(t, limited(access.Quota{SessionClaims: 2}), access.Options{})
	ci, other, ops := s.user("ci", "s"), s.user("ci", "other"), s.user("ops", "s")
	ci.takes("a")
	ci.takes("b")
	_, err := ci.tries(ci.wants("c"))
	s.is("a third claim of one session", err, lockkeeper.Quota)
	other.takes("c")
	for _, path := range []string{"d", "e", "f"} {
		ops.takes(path)
	}
	ci.releases(1)
	ci.takes("g")
}

// Concurrent claims never exceed the quota, can use all of it, and free it when they end.
func TestBurstNeverExceedsQuota(t *testing.T) {
	s := newSite(t, limited(access.Quota{Claims: 10, Paths: 15}), access.Options{})
	u := s.user("ci", "s")
	var held, most, refused atomic.Int64
	var running sync.WaitGroup
	for i := range 64 {
		running.Go(func() {
			for id := uint64(i*1000 + 1); id < uint64(i*1000+200); id++ {
				w := lockkeeper.Want{ID: id,
					Targets: []lockkeeper.Target{{Path: lockkeeper.Path(fmt.Sprint("p", id)), Mode: lockkeeper.ModeExclusive}}}
				_, err := u.tries(w)
				if errors.Is(err, lockkeeper.Quota) {
					refused.Add(1)
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				n := held.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				held.Add(-1)
				u.releases(id)
			}
		})
	}
	running.Wait()
	if most.Load() > 10 || most.Load() == 0 {
		t.Errorf("%d were held at once, want at most 10", most.Load())
	}
	s.counts(0, 0, 1, 0)
	u.last = 1_000_000
	for range 10 {
		u.takes(fmt.Sprint("q", u.last))
	}
	_, err := u.tries(u.wants("r"))
	s.is("one more", err, lockkeeper.Quota)
}

// Clients that together use no more than the quota are never refused.
func TestUseWithinQuotaIsNeverRefused(t *testing.T) {
	s := newSite(t, limited(access.Quota{
		Claims:   8,
		Waiting:  8,
		Paths:    8,
		Sessions: 1,
	}), access.Options{Limits: capped(8, 1)})
	u := s.user("ci", "s")
	var running sync.WaitGroup
	for i := range uint64(8) {
		running.Go(func() {
			for n := range uint64(500) {
				w := lockkeeper.Want{
					ID:      1 + i + 8*n,
					Wait:    lockkeeper.Forever,
					Targets: []lockkeeper.Target{{Path: lockkeeper.Path(fmt.Sprint("p", i)), Mode: lockkeeper.ModeExclusive}},
				}
				if _, err := u.tries(w); err != nil {
					t.Error(err)
					return
				}
				u.releases(w.ID)
			}
		})
	}
	running.Wait()
}

// A new gate counts existing sessions and claims when they are used again, and refuses none of
// them. New claims are under the quota.
func TestRestartedGateRefusesNoExistingClaim(t *testing.T) {
	s := newSite(t, limited(access.Quota{}), access.Options{})
	u, renewing := s.user("ci", "s"), s.user("ci", "r")
	u.takes("a")
	u.takes("b")
	renewing.takes("wait", "a")
	s.policy = limited(access.Quota{Claims: 2, Sessions: 2})
	s.policy.Tokens = []access.Token{}
	s.issue("ci")
	s.issue("ops")
	s.open(s.engine, access.Options{})
	again := func(u *user) *user {
		p := s.pass(s.secrets["ci"])
		return &user{site: s, pass: p, Engine: p.Engine(), key: u.key, last: u.last}
	}
	u, renewing = again(u), again(renewing)
	if err := u.attach("s", time.Minute, 1, 2); err != nil {
		t.Fatal(err)
	}
	s.counts(2, 0, 1, 2)
	if _, err := renewing.Renew(t.Context(), renewing.key); err != nil {
		t.Fatal(err)
	}
	s.counts(3, 1, 2, 3)
	if _, err := renewing.tries(lockkeeper.Want{
		ID:      1,
		Wait:    lockkeeper.Forever,
		Targets: u.wants("a").Targets,
	}); err != nil {
		t.Errorf("a repetition: %v", err)
	}
	_, err := renewing.tries(renewing.wants("c"))
	s.is("a new claim", err, lockkeeper.Quota)
	u.releases(1) // grants the other claim; this gate is not notified, since r was not attached there
	if _, err := renewing.Renew(t.Context(), renewing.key); err != nil {
		t.Fatal(err)
	}
	s.counts(2, 0, 2, 2)

	s.open(s.engine, access.Options{Limits: capped(1, 0)})
	renewing = again(renewing)
	s.user("ops", "full").takes("z")
	for range 2 { // a claim that a gate does not know counts once
		if _, err := renewing.tries(lockkeeper.Want{
			ID:      1,
			Wait:    lockkeeper.Forever,
			Targets: u.wants("a").Targets,
		}); err != nil {
			t.Errorf("a repetition: %v", err)
		}
	}
	s.counts(1, 0, 1, 1)
	_, err = renewing.tries(renewing.wants("c"))
	s.is("a new claim at the cap", err, lockkeeper.Quota)
}

// A quota does not refuse a claim that exists. It refuses one that has ended: the engine may forget
// it before the repeated call, and would make it again.
func TestQuotaRefusesToRepeatEndedClaim(t *testing.T) {
	s := newSite(t, limited(access.Quota{Claims: 1}), access.Options{})
	ci := s.user("ci", "c")
	first := ci.wants("db")
	if _, err := ci.tries(first); err != nil {
		t.Fatal(err)
	}
	ci.releases(first.ID)
	second := ci.wants("disk")
	if _, err := ci.tries(second); err != nil {
		t.Fatal(err)
	}
	_, err := ci.tries(first)
	s.is("the ended claim, repeated", err, lockkeeper.Quota)
	if _, err := ci.tries(second); err != nil {
		t.Errorf("the claim that is held, repeated: %v", err)
	}
}
