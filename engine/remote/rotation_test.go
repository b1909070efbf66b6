package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// everything returns a policy that lets clients with the tokens or a certificate do everything.
func everything(tokens ...access.Token) *access.Policy {
	return &access.Policy{Certificates: true, Tokens: tokens, Rules: []access.Rule{{
		Who:   []string{"*"},
		May:   []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze, access.Drain},
		Paths: []string{"*"},
	}}}
}

// issue makes a token for an identity, and a file that has its secret.
func issue(t *testing.T, name string) (access.Token, string) {
	t.Helper()
	secret, digest := access.NewToken()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return access.Token{Name: name, Digest: digest}, file
}

// guarded starts a memlock server with TLS and the policy. It returns the beginning of its URL, to
// which a client appends its credentials.
func guarded(t *testing.T, p *access.Policy) (gate *access.Gate, url string) {
	t.Helper()
	ca, e := testca.New(t), memlock.New()
	gate = access.New(e, p, access.Options{})
	return gate, "lks://" + secured(t, e, ca.Server(), nil, server.Options{Gate: gate}) + "?ca=" + ca.File
}

// An engine behind TLS and a gate passes the suite of every engine.
func TestConformanceBehindGate(t *testing.T) {
	testmode.NeedLong(t, "it takes as long as the suite without TLS")
	ca := testca.New(t)
	pair := ca.Server()
	token, file := issue(t, "ci")
	enginetest.Run(t, enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			e := memlock.New()
			gate := access.New(e, everything(token), access.Options{})
			url := "lks://" + secured(t, e, pair, nil, server.Options{Gate: gate}) + "?ca=" + ca.File + "&token=" + file
			return func() lockkeeper.Engine { return dial(t, url) }
		},
	})
}

// A client without valid credentials is refused at once, with advice. So is one that comes back after
// its token was withdrawn, while others go on.
func TestRefusedClientsGetAdvice(t *testing.T) {
	t.Setenv(remote.TokenVariable, "")
	t.Setenv(remote.TokenFileVariable, "")
	alice, file := issue(t, "alice")
	bob, bobs := issue(t, "bob")
	gate, url := guarded(t, everything(alice, bob))
	_, err := remote.Open(t.Context(), url)
	if !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), "LOCKKEEPER_TOKEN_FILE") {
		t.Errorf("without a token: %v", err)
	}
	_, wrong := issue(t, "alice")
	if _, err = remote.Open(t.Context(), url+"&token="+wrong); !errors.Is(err, lockkeeper.ErrDenied) ||
		!strings.Contains(err.Error(), "the token of ?token="+wrong) {
		t.Errorf("with another token: %v", err)
	}
	e, other := dial(t, url+"&token="+file), dial(t, url+"&token="+bobs)
	defer e.Close()
	defer other.Close()
	c, d := lockkeeper.New(e), lockkeeper.New(other)
	defer c.Close()
	defer d.Close()
	hold, err := c.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	gate.Set(everything(bob))
	began := time.Now()
	if _, err := c.Lock(t.Context(), "b"); !errors.Is(err, lockkeeper.ErrDenied) || time.Since(began) > patience/3 {
		t.Errorf("after it was withdrawn, and %s: %v", time.Since(began), err)
	}
	if _, err := d.TryLock(t.Context(), "a"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
		t.Errorf("the path that alice holds: %v", err)
	}
	if err := hold.Err(); err != nil {
		t.Errorf("the hold ended before its time: %v", err)
	}
	again, err := d.Lock(t.Context(), "b")
	if err != nil {
		t.Fatalf("bob gets no lock: %v", err)
	}
	again.Release(t.Context())
}

// entered is a client with a session and a certificate that expires soon.
type entered struct {
	lockkeeper.Engine
	lease lockkeeper.Lease
	ended chan struct{} // filled when the connection has ended
}

// enter connects to the URL and attaches a session.
func enter(ctx context.Context, url, session string) (*entered, error) {
	e, err := remote.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	in := &entered{Engine: e, ended: make(chan struct{}, 1)}
	in.lease, err = e.Attach(ctx, lockkeeper.Session{ID: session, TTL: time.Minute}, func([]lockkeeper.Status) {
		select {
		case in.ended <- struct{}{}:
		default:
		}
	})
	if err == nil {
		var state lockkeeper.ServerState
		if state, err = e.About(ctx); err == nil && state.Identity != "mayfly" {
			err = fmt.Errorf("the server knows it as %q", state.Identity)
		}
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return in, nil
}

// A client's certificate that expires while the client is connected is invalid from then on.
func TestExpiredCertificateEndsConnection(t *testing.T) {
	ca, e := testca.New(t), memlock.New()
	gate := access.New(e, everything(), access.Options{})
	url := "lks://" + secured(t, e, ca.Server(), ca, server.Options{Gate: gate}) + "?ca=" + ca.File
	shown := func(p testca.Pair) string { return url + "&cert=" + p.Cert + "&key=" + p.Key }
	oak := dial(t, shown(ca.Issue("oak", time.Now().Add(time.Hour))))
	defer oak.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var mayfly *entered
	var until time.Time
	for life := 2 * time.Second; mayfly == nil; life *= 2 { // a slow computer takes longer to enter
		until = time.Now().Add(life).Truncate(time.Second)
		var err error
		if mayfly, err = enter(ctx, shown(ca.Issue("mayfly", until)), life.String()); err != nil &&
			(ctx.Err() != nil || time.Now().Before(until)) {
			t.Fatal(err)
		}
	}
	defer mayfly.Close()
	<-mayfly.ended
	if now := time.Now(); now.Before(until) {
		t.Errorf("the connection ended %s before the certificate", until.Sub(now))
	}
	if _, err := mayfly.Renew(ctx, mayfly.lease.Key); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("after the end: %v", err)
	}
	if state, err := oak.(*remote.Engine).About(ctx); err != nil || state.Identity != "oak" {
		t.Errorf("oak has lost its connection: %+v %v", state, err)
	}
}

// The server's certificate, its authority and the clients' tokens are all replaced while clients
// work. No call fails, and in the end the old credentials are invalid.
func TestRotationUnderLoad(t *testing.T) {
	before, after := testca.New(t), testca.New(t)
	trusted := filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(trusted, append(read(t, before.File), read(t, after.File)...), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, e := before.Server(), memlock.New()
	one, first := issue(t, "one")
	two, second := issue(t, "two")
	gate := access.New(e, everything(one, two), access.Options{})
	address := secured(t, e, pair, nil, server.Options{Gate: gate})
	url := "lks://" + address + "?ca=" + trusted + "&token="
	worked := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for _, file := range []string{first, second} {
		c := lockkeeper.New(dial(t, url+file))
		defer c.Close()
		workers.Go(func() {
			for ctx.Err() == nil {
				hold, err := c.Lock(t.Context(), "shared/by/both")
				if err == nil {
					err = hold.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case worked <- struct{}{}:
				default:
				}
			}
		})
	}
	busy := func() { // waits until the clients have made more calls
		t.Helper()
		hangs := time.After(patience)
		for range 50 {
			select {
			case <-worked:
			case <-hangs:
				t.Fatal("the clients do not work any more")
			}
		}
	}
	busy()
	after.Replace(pair, "127.0.0.1", time.Now().Add(time.Hour))
	for _, token := range []struct {
		old  *access.Token
		file string
	}{{&one, first}, {&two, second}} {
		fresh, file := issue(t, token.old.Name)
		gate.Set(everything(one, two, fresh)) // old and new token are valid
		busy()
		if err := os.Rename(file, token.file); err != nil {
			t.Fatal(err)
		}
		*token.old = fresh
		gate.Set(everything(one, two)) // only the new token is valid
		busy()
	}
	deadline := time.Now().Add(patience)
	for { // the server looks at its files once in a second
		fresh, err := remote.Open(t.Context(), "lks://"+address+"?ca="+after.File+"&token="+first)
		if err == nil {
			fresh.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the new certificate is not in use: %v", err)
		}
	}
	busy()
	if _, err := remote.Open(t.Context(), "lks://"+address+"?ca="+before.File+"&token="+
		first); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("the old authority is still accepted: %v", err)
	}
	stop()
	workers.Wait()
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// While one server is down, the refusal of another one, whose file of tokens is older, ends nothing.
func TestRefusalOfOneServerEndsNothing(t *testing.T) {
	ca, e := testca.New(t), memlock.New()
	pair := ca.Server()
	token, file := issue(t, "ci")
	another, _ := issue(t, "other")
	behind := func(token access.Token) string {
		return secured(t, shared{e}, pair, nil, server.Options{Gate: access.New(e, everything(token), access.Options{})})
	}
	t.Cleanup(func() { e.Close() })
	proxy, err := badnet.NewFrameless(behind(token), 1)
	if err != nil {
		t.Fatal(err)
	}
	query := "?ca=" + ca.File + "&token=" + file
	client := dial(t, "lks://"+proxy.Addr()+","+behind(another)+query)
	defer client.Close()
	proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = client.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("with one server down, and refused by the other: %v", err)
	}
	if _, err := remote.Open(t.Context(), "lks://"+proxy.Addr()+","+behind(another)+query); !errors.Is(err,
		lockkeeper.ErrDenied) {
		t.Errorf("a first connection: %v", err)
	}
}
