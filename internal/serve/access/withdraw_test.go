package access_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// refusesAll fails the test unless the pass is withdrawn: every call is denied.
func (u *user) refusesAll() {
	u.Helper()
	<-u.pass.Done() // may close a moment after the first refusal
	_, attached := u.Attach(u.Context(), lockkeeper.Session{ID: "x", TTL: time.Minute}, nil)
	_, renewed := u.Renew(u.Context(), u.key)
	_, claimed := u.tries(u.wants("x"))
	var listed error
	for _, err := range u.List(u.Context(), lockkeeper.Query{}) {
		listed = err
	}
	for i, err := range []error{attached, renewed, claimed, listed, u.pass.May(access.Lock, "a"),
		u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}), u.ends(lockkeeper.Ending{Kind: lockkeeper.Leave}),
		u.ends(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "ci:s", ID: 1}})} {
		if !errors.Is(err, lockkeeper.ErrDenied) {
			u.Errorf("call %d of a withdrawn pass: %v, want denied", i, err)
		}
	}
}

// follows follows all claims, and sends the last error when the list ends.
func (u *user) follows() <-chan error {
	end := make(chan error, 1)
	go func() {
		var last error
		for _, err := range u.List(u.Context(), lockkeeper.Query{Follow: true}) {
			last = err
		}
		end <- last
	}()
	synctest.Wait()
	return end
}

// Removing a token withdraws its passes. The identity's claims live until the TTL ends, and another
// token of the identity continues with them.
func TestRemovedTokenEndsItsPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("ops", "lock", "*")}},
			access.Options{})
		old, other := s.user("ci", "s"), s.user("ops", "s")
		old.takes("db")
		following, otherFollowing := old.follows(), other.follows()
		s.issue("ci")
		s.gate.Set(&s.policy)
		successor := &user{site: s, pass: s.pass(s.secrets["ci"]), key: old.key, last: 1}
		successor.Engine = successor.pass.Engine()
		if _, err := old.Renew(t.Context(), old.key); err != nil {
			t.Errorf("a renewal by a token that stays: %v", err)
		}
		s.policy.Tokens = s.policy.Tokens[1:] // without the first token of ci
		s.gate.Set(&s.policy)
		old.refusesAll()
		if err := <-following; !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("its follower ends with %v, want denied", err)
		}
		if _, err := successor.Renew(t.Context(), old.key); err != nil {
			t.Errorf("a renewal by the new token: %v", err)
		}
		if st, err := successor.tries(lockkeeper.Want{ID: 1, Targets: old.wants("db").Targets}); err != nil ||
			st.State != lockkeeper.Held {
			t.Errorf("the claim, repeated: %s, %v; want it held", st.State, err)
		}
		select {
		case err := <-otherFollowing:
			t.Errorf("another's follower ended: %v", err)
		default:
		}
		s.policy.Rules = s.policy.Rules[1:] // no rule names ci any more
		s.gate.Set(&s.policy)
		successor.refusesAll()
		if _, err := s.gate.Admit(access.Credentials{Token: s.secrets["ci"]}); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("admitted without a rule: %v", err)
		}
		time.Sleep(time.Minute) // its session ends
		if err := other.attach("s", time.Minute); err != nil {
			t.Fatal(err)
		}
		other.takes("db")
	})
}

// New rules apply from the next call on, also to passes in use.
func TestNewRulesApplyFromNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "a")}}, access.Options{})
		u := s.user("ci", "s")
		held := u.takes("a").Ref.ID
		s.policy.Rules = []access.Rule{rule("c*", "lock", "b")}
		s.gate.Set(&s.policy)
		u.takes("b")
		_, err := u.tries(u.wants("a/x"))
		s.is("a path of the former rules", err, lockkeeper.ErrDenied)
		_, err = u.tries(lockkeeper.Want{ID: held, Targets: u.wants("a").Targets})
		s.is("a repeated claim of a path of the former rules", err, lockkeeper.ErrDenied)
		if _, err := u.Renew(t.Context(), u.key); err != nil {
			t.Error(err)
		}
		u.releases(held)
	})
}

// certificate returns a certificate for the name, as if the TLS layer had verified it.
func certificate(name string, lives time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: now, NotAfter: now.Add(lives)}
}

// A connection that stays open loses its pass when its certificate expires.
func TestExpiredCertificateEndsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Certificates: true, Rules: []access.Rule{rule("*", "lock", "*")}}, access.Options{})
		admit := func(lives time.Duration) (*access.Pass, error) {
			return s.gate.Admit(access.Credentials{Certificate: certificate("host.example", lives)})
		}
		p, err := admit(24 * time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		later, err := admit(48 * time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		u := &user{site: s, pass: p, Engine: p.Engine()}
		if err := u.attach("s", time.Minute); err != nil {
			t.Fatal(err)
		}
		end := u.follows()
		time.Sleep(24*time.Hour - time.Nanosecond)
		if err := p.May(access.Lock, "x"); err != nil {
			t.Errorf("just before its end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		u.refusesAll()
		if err := <-end; !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("its follower ends with %v, want denied", err)
		}
		if err := later.May(access.Lock, "x"); err != nil {
			t.Errorf("another certificate of the same name: %v", err)
		}
		early := certificate("host.example", time.Hour)
		early.NotBefore = time.Now().Add(time.Second)
		if _, err := s.gate.Admit(access.Credentials{Certificate: early}); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("admitted with a certificate that is not valid yet: %v", err)
		}
		if _, err := admit(0); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("admitted with an expired certificate: %v", err)
		}
		s.policy.Certificates = false
		s.gate.Set(&s.policy)
		if err := later.May(access.Lock, "x"); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("a certificate that the policy accepts no more: %v, want denied", err)
		}
		if _, err := admit(time.Hour); !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), "token") {
			t.Errorf("admitted with a certificate: %v", err)
		}
	})
}

// A token expires on its date, which a new policy may move.
func TestExpiredTokenEndsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is 2000-01-01
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
		s.policy.Tokens[0].Expires = time.Date(2000, 1, 3, 0, 0, 0, 0, time.UTC)
		s.gate.Set(&s.policy)
		u := s.user("ci", "s")
		s.policy.Tokens[0].Expires = time.Date(2000, 1, 4, 0, 0, 0, 0, time.UTC)
		s.gate.Set(&s.policy)
		time.Sleep(60 * time.Hour)
		if err := u.pass.May(access.Lock, "x"); err != nil {
			t.Errorf("after the expiry was moved: %v", err)
		}
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		u.refusesAll()
		if _, err := s.gate.Admit(access.Credentials{Token: s.secrets["ci"]}); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("admitted after the expiry: %v", err)
		}

		s.policy.Tokens[0].Expires = time.Time{}
		s.gate.Set(&s.policy)
		u = s.user("ci", "t")
		end := u.follows()
		s.policy.Tokens[0].Expires = time.Now().Add(time.Second)
		s.gate.Set(&s.policy)
		time.Sleep(time.Second)
		synctest.Wait()
		u.refusesAll()
		if err := <-end; !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("its follower ends with %v, want denied", err)
		}
	})
}

// Giving a token to another identity withdraws its passes. Removing the policy, or setting one
// where there was none, withdraws all passes.
func TestReassignedTokenEndsPasses(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("ops", "lock", "*")}},
		access.Options{})
	ci, ops := s.user("ci", "s"), s.user("ops", "s")
	s.policy.Tokens[0].Name, s.policy.Tokens[1].Name = "ops", "other"
	s.gate.Set(&s.policy)
	ci.refusesAll()
	ops.refusesAll() // no rule names other
	if p := s.pass(s.secrets["ci"]); p.Name() != "ops" {
		t.Errorf("the token is of %s", p.Name())
	}
	s.gate.Set(nil)
	open := s.user("", "s")
	open.takes("a")
	s.gate.Set(&s.policy)
	open.refusesAll()
	ci = &user{site: s, pass: s.pass(s.secrets["ci"])}
	s.gate.Set(nil)
	select {
	case <-ci.pass.Done():
	default:
		t.Error("the pass is not withdrawn")
	}
}

// A list that is cut short by a withdrawal ends with an ErrDenied.
func TestWithdrawnPassEndsListWithDenial(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
	u := s.user("ci", "s")
	u.takes("a")
	u.takes("b")
	var last error
	n := 0
	for _, err := range u.List(t.Context(), lockkeeper.Query{}) {
		last = err
		n++
		s.gate.Set(&access.Policy{})
	}
	if n != 2 || !errors.Is(last, lockkeeper.ErrDenied) {
		t.Errorf("%d answers, the last of which is %v; want a claim, and then a denial", n, last)
	}
}

func TestCertificateNames(t *testing.T) {
	uri := func(text string) []*url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	for _, c := range []struct {
		cert x509.Certificate
		want string // "" is an error
	}{
		{x509.Certificate{Subject: pkix.Name{CommonName: "ci"}}, "ci"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"host.example", "b"}}, "host.example"},
		{x509.Certificate{DNSNames: []string{"dns"}, URIs: uri("spiffe://trust.example/ns/x/sa/deploy")}, "deploy"},
		{x509.Certificate{DNSNames: []string{"dns"}, URIs: uri("spiffe://trust.example/deploy/")}, "deploy"},
		{x509.Certificate{DNSNames: []string{"dns"}, URIs: uri("spiffe://trust.example")}, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"*.example"}}, ""},
		{x509.Certificate{URIs: uri("spiffe://t/ci%3Aops")}, ""},
		{x509.Certificate{URIs: uri("lockkeeper://cluster/node/1/ci")}, ""}, // of a node of a cluster
		{x509.Certificate{URIs: append(uri("spiffe://t/ci"), uri("lockkeeper://cluster/node/1/ci")...)}, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "ci:ops"}}, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("n", access.MaxIdentity+1)}}, ""},
		{x509.Certificate{}, ""},
	} {
		got, err := access.CertificateName(&c.cert)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v %v %v: %q (%v), want %q", c.cert.Subject, c.cert.DNSNames, c.cert.URIs, got, err, c.want)
		}
	}
}

// A refusal says what is wrong, and does not repeat the token.
func TestAdmitExplainsRefusals(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
	unruled := s.issue("unruled")
	s.gate.Set(&s.policy)
	unknown, _ := access.NewToken()
	for token, word := range map[string]string{
		"":                               "authentication required",
		unknown:                          "unknown here",
		s.secrets["ci"] + "x":            "unknown here",
		strings.ToUpper(s.secrets["ci"]): "unknown here",
		strings.Repeat("x", 1<<20):       "unknown here", unruled: "no rule",
	} {
		p, err := s.gate.Admit(access.Credentials{Token: token, From: "here"})
		if p != nil || !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), word) {
			t.Errorf("%.60q: %v, want %q", token, err, word)
		}
		if a := s.act(); a.Verb != access.Connect || a.From != "here" || a.Err == nil {
			t.Errorf("Acted gets %+v", a)
		}
		if len(token) > 10 && strings.Contains(err.Error(), token[4:10]) {
			t.Errorf("the refusal repeats the token: %v", err)
		}
	}
	s.policy.Certificates = true
	s.gate.Set(&s.policy)
	if _, err := s.gate.Admit(access.Credentials{Token: unknown, Certificate: certificate("ci", time.Hour)}); err == nil {
		t.Error("a client with a wrong token is admitted because it has a certificate")
	}
	if a, b := s.pass(s.secrets["ci"]), s.pass(s.secrets["ci"]); a.Name() != "ci" || a.Done() != b.Done() {
		t.Error("two passes of one token do not share Done")
	}
	open := s.gate
	s.gate.Set(nil)
	if p, err := open.Admit(access.Credentials{}); err != nil || !open.Open() || p.Name() != "" ||
		p.May(access.Drain, "") != nil {
		t.Errorf("without a policy: %v", err)
	}
}

// While the tokens of one identity change again and again, and its passes are withdrawn in the
// middle of calls, another identity is never refused.
func TestRotationDisturbsNoOtherIdentity(t *testing.T) {
	s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "ci"), rule("ops", "lock", "ops")}},
		access.Options{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pair := func(u *user, path string) error {
		st, err := u.Claim(ctx, u.key, u.wants(path))
		if err == nil {
			err = u.End(ctx, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: st.Ref.ID})
		}
		return err
	}
	var working sync.WaitGroup
	ops := s.user("ops", "s")
	working.Go(func() {
		for ctx.Err() == nil {
			for _, err := range ops.List(ctx, lockkeeper.Query{Follow: true}) {
				if err != nil && !errors.Is(err, lockkeeper.ErrUnavailable) { // a follower that is too slow
					t.Errorf("the follower of ops: %v", err)
					return
				}
			}
		}
	})
	pairs := 0
	working.Go(func() {
		for ; ctx.Err() == nil; pairs++ {
			if err := pair(ops, "ops/x"); err != nil && ctx.Err() == nil {
				t.Errorf("ops: %v", err)
				return
			}
		}
	})
	var touched sync.WaitGroup
	kept := s.policy.Tokens[1] // the one of ops
	for i := range 200 {
		s.policy.Tokens = []access.Token{kept}
		s.issue("ci")
		s.gate.Set(&s.policy)
		u := s.user("ci", fmt.Sprint("s", i))
		started := make(chan struct{})
		touched.Go(func() {
			err := pair(u, "ci/x")
			for close(started); err == nil; {
				err = pair(u, "ci/x")
			}
			if !errors.Is(err, lockkeeper.ErrDenied) {
				t.Errorf("ci, whose token was removed: %v, want denied", err)
			}
			u.refusesAll()
		})
		<-started
	}
	s.policy.Tokens = []access.Token{kept}
	s.gate.Set(&s.policy)
	touched.Wait()
	stop()
	working.Wait()
	if pairs == 0 {
		t.Error("ops made no claim")
	}
}

// A wall clock that is briefly ahead withdraws passes whose credentials expire later. When it is
// right again, the same credentials are admitted, until they expire.
func TestCredentialWorksAgainAfterClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*")}}, access.Options{})
		s.policy.Tokens[0].Expires = time.Now().Add(1000 * time.Hour)
		s.gate.Set(&s.policy)
		u := s.user("ci", "s")
		u.takes("db")
		u.pass.Elapse()
		s.is("a claim by a clock that is ahead", u.pass.May(access.Lock, "a"), lockkeeper.ErrDenied)
		u.refusesAll()
		again := &user{site: s, pass: s.pass(s.secrets["ci"]), key: u.key}
		again.Engine = again.pass.Engine()
		select {
		case <-again.pass.Done():
			t.Error("the new pass is withdrawn")
		default:
		}
		if _, err := again.Renew(t.Context(), again.key); err != nil {
			t.Error(err)
		}
		time.Sleep(999 * time.Hour)
		select {
		case <-again.pass.Done():
			t.Error("the pass has ended early")
		default:
		}
		time.Sleep(time.Hour)
		<-again.pass.Done()
	})
}
