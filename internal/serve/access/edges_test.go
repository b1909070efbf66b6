package access_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// An amendment is refused if a new claim with the same want would be.
func TestAmendmentsObeyRules(t *testing.T) {
	most := 3
	s := newSite(t, access.Policy{
		Rules:  []access.Rule{rule("ci", "lock", "a"), rule("ops", "lock", "*")},
		Quotas: []access.Quota{{Who: []string{"ci"}, HighestPriority: &most}},
	}, access.Options{})
	holder, u := s.user("ops", "h"), s.user("ci", "s")
	holder.takes("a")
	waits := u.wants("wait", "a")
	if _, err := u.tries(waits); err != nil {
		t.Fatal(err)
	}
	waits.Revision, waits.Priority = 1, 4
	_, err := u.tries(waits)
	s.is("a priority that is too high", err, lockkeeper.Quota)
	waits.Priority = 3
	s.policy.Rules[0] = rule("ci", "lock", "b")
	s.gate.Set(&s.policy)
	_, err = u.tries(waits)
	s.is("below a path without a rule", err, lockkeeper.ErrDenied)
	for st, err := range s.engine.List(t.Context(), lockkeeper.Query{Ref: lockkeeper.Ref{Session: "ci:s", ID: waits.ID}}) {
		if err != nil || st.Priority != 0 || st.Revision != 0 {
			t.Errorf("it was amended: %+v, %v", st, err)
		}
	}
}

// A follower sees only the claims that a list would show, also among later changes.
func TestFollowerSeesOnlyPermittedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{
			rule("ci", "lock", "*"), rule("ci", "look", "shown"), rule("web", "lock", "*"),
		}}, access.Options{})
		u, web := s.user("ci", "s"), s.user("web", "s")
		web.takes("secret/before")
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 100)
		go func() {
			defer close(seen)
			for st := range u.List(ctx, lockkeeper.Query{Follow: true}) {
				if len(st.Grants) > 0 {
					seen <- string(st.Grants[0].Path)
				}
			}
		}()
		synctest.Wait()
		web.takes("secret/after")
		web.takes("shown/x")
		u.takes("mine")
		web.releases(1)
		synctest.Wait()
		cancel()
		var paths []string
		for p := range seen {
			paths = append(paths, p)
		}
		if got := strings.Join(paths, " "); got != "shown/x mine" {
			t.Errorf("sees %q, want %q", got, "shown/x mine")
		}
	})
}

// Status.Inside names the outer claim by the identity's own session id.
func TestInsideUsesNamesOfIdentity(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
	u := s.user("ci", "s")
	outer := u.takes("a").Ref
	inner := u.wants("a/b")
	inner.Inside = outer
	if st, err := u.tries(inner); err != nil || st.Inside != outer {
		t.Errorf("inside %q, %v; want %q", st.Inside, err, outer)
	}
}

// endless counts the calls of End.
type endless struct {
	lockkeeper.Engine
	asked int
}

func (e *endless) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	e.asked++
	return e.Engine.End(ctx, k, ending)
}

// An identity that may revoke below one path cannot find out which claims exist elsewhere, and the
// gate passes no revocation to the engine that the rules do not allow.
func TestRevokeRevealsNoHiddenClaim(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ops", "revoke", "a"), rule("web", "lock", "*")}},
		access.Options{})
	e := &endless{Engine: s.engine}
	s.open(e, access.Options{})
	web, ops := s.user("web", "s"), s.user("ops", "o")
	web.takes("secret")
	var texts []string
	for _, id := range []uint64{1, 7} { // the first one exists
		err := ops.ends(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "web:s", ID: id}})
		s.is("revoked", err, lockkeeper.ErrNotHeld)
		texts = append(texts, strings.ReplaceAll(err.Error(), "web:s.7", "web:s.1"))
	}
	if texts[0] != texts[1] || e.asked > 0 {
		t.Errorf("the errors differ, or the engine got %d calls: %q", e.asked, texts)
	}
}

// crossing is an engine whose answers to renewals are late, and whose answers to claims are lost.
type crossing struct {
	lockkeeper.Engine
	late chan struct{}
}

func (e *crossing) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := e.Engine.Renew(ctx, k)
	<-e.late
	return lease, err
}

func (e *crossing) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	_, err := e.Engine.Claim(ctx, k, w)
	return lockkeeper.Status{}, errors.Join(err, lockkeeper.ErrUnavailable)
}

// A claim whose answer was lost counts until a lease does not list it. A lease that the client
// requested before the loss proves nothing.
func TestOldLeaseReleasesNoNewerClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
		e := &crossing{memlock.New(), make(chan struct{})}
		defer e.Close()
		s.open(e, access.Options{})
		u := s.user("ci", "s")
		renewed := make(chan error, 1)
		go func() {
			_, err := u.Renew(t.Context(), u.key)
			renewed <- err
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		_, err := u.tries(u.wants("a"))
		s.is("a claim", err, lockkeeper.ErrUnavailable)
		close(e.late)
		if err := <-renewed; err != nil {
			t.Error(err)
		}
		if claims, _, _, _ := s.gate.Usage("ci"); claims != 1 {
			t.Errorf("%d claims count, want the held one", claims)
		}
	})
}

// A list about a path at which an identity may do nothing is denied, and not empty: it would look free.
func TestListOfAForbiddenPathIsDenied(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{
		rule("ci", "look", "b/x"), rule("ci", "lock", "c"), rule("ops", "lock", "*"),
	}}, access.Options{})
	s.user("ops", "o").takes("a/x")
	ci := s.user("ci", "one")
	for path, want := range map[lockkeeper.Path]error{
		"a/x": lockkeeper.ErrDenied, "a": lockkeeper.ErrDenied, "b": nil, "b/x": nil, "b/x/y": nil, "c/d": nil, "": nil,
	} {
		var got error
		for _, err := range ci.List(t.Context(), lockkeeper.Query{Meets: path}) {
			got = err
		}
		if !errors.Is(got, want) {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
