package neighbours

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/gctune"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/httpapi"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func([]string) error{"serve": playServer, "victim": playVictim})
	os.Exit(m.Run())
}

// patience bounds what must happen soon. It is a safety net.
const patience = time.Minute

// A site is a server in a process of its own, with two identities, and the second of them in
// another process.
type site struct {
	testing.TB
	server, victim *roles.Process
	address, web   string // of the server
	secret         string // the attacker's
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{TB: t, server: roles.Start(t, "serve")}
	var victim string
	if _, err := fmt.Sscan(s.server.Read("serving"), &s.address, &s.web, &s.secret, &victim); err != nil {
		t.Fatal(err)
	}
	s.victim = roles.Start(t, "victim", s.address, s.web, victim)
	s.victim.Read("ready")
	return s
}

// playServer serves an engine in memory as lk serve does, until its standard input ends. It
// answers each line with its memory, and with what is used of the ledger.
func playServer([]string) error {
	e := memlock.New()
	policy := &access.Policy{Quotas: []access.Quota{{Who: []string{"*"}, Sessions: 1000}}}
	secrets := map[string]string{}
	for who, path := range map[string]string{"attacker": "a", "victim": "v"} {
		secret, digest := access.NewToken()
		secrets[who] = secret
		policy.Tokens = append(policy.Tokens, access.Token{Name: who, Digest: digest})
		policy.Rules = append(policy.Rules, access.Rule{
			Who: []string{who}, May: []access.Verb{access.Look, access.Lock}, Paths: []string{path},
		})
	}
	if err := policy.Check(); err != nil {
		return err
	}
	gate := access.New(e, policy, access.Options{})
	healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	web := httpapi.New(gate, httpapi.Options{Open: map[string]http.Handler{"GET /healthz": healthy}}).Server()
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	fmt.Println("serving", listeners[0].Addr(), listeners[1].Addr(), secrets["attacker"], secrets["victim"])
	gctune.Tune()
	s := server.New(e, server.Options{Gate: gate})
	go web.Serve(listeners[1])
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			runtime.GC()
			runtime.GC() // what pools have kept over the first
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			l := gate.Ledger()
			fmt.Println("uses", m.HeapAlloc+m.StackInuse, l.Used(limits.Sessions), l.Used(limits.Claims),
				l.Used(limits.Watchers),
				l.Used(limits.Undelivered), l.Used(limits.Unsent), l.Used(limits.Connections), l.Used(limits.HTTPConnections))
		}
		os.Exit(0)
	}()
	return s.Serve(listeners[0])
}

// uses is what the server uses.
type uses struct {
	memory                                                            uint64 // bytes in use
	sessions, claims, watchers, undelivered, unsent, connections, web int
}

func (s *site) uses() (u uses) {
	s.Helper()
	s.server.Send("uses")
	if _, err := fmt.Sscan(s.server.Read("uses"), &u.memory, &u.sessions, &u.claims, &u.watchers,
		&u.undelivered, &u.unsent, &u.connections, &u.web); err != nil {
		s.Fatal(err)
	}
	return u
}

// worst is the most of both in everything.
func (u uses) worst(v uses) uses {
	return uses{
		max(u.memory, v.memory), max(u.sessions, v.sessions), max(u.claims, v.claims), max(u.watchers, v.watchers),
		max(u.undelivered, v.undelivered), max(u.unsent, v.unsent), max(u.connections, v.connections), max(u.web, v.web),
	}
}

// playVictim has one client of short leases, that keeps a lock all the time. For each line, a
// number, it locks and releases another one so many times, makes many claims at once, so that
// they fill a large frame, and asks over HTTP by new connections.
func playVictim(args []string) error {
	address, web, secret := args[0], args[1], args[2]
	file, err := os.CreateTemp("", "secret")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(secret); err != nil {
		return err
	}
	file.Close()
	ctx := context.Background()
	e, err := remote.Open(ctx, "lk://"+address+"?token="+file.Name())
	if err != nil {
		return err
	}
	c := lockkeeper.New(e, lockkeeper.SessionTTL(3*time.Second))
	kept, err := c.Lock(ctx, "v/kept")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var pairs int
		if _, err := fmt.Sscan(lines.Text(), &pairs); err != nil {
			return err
		}
		took, err := lockOften(ctx, c, pairs)
		if err == nil {
			err = lockMany(ctx, c)
		}
		if err == nil {
			err = askHTTP(web, secret)
		}
		if err != nil {
			return err
		}
		if kept.Err() != nil {
			return fmt.Errorf("the lock that was kept is lost: %w", kept.Err())
		}
		fmt.Println("locked", int64(took[len(took)/2]), int64(took[len(took)*99/100]), int64(took[len(took)-1]))
	}
	return nil
}

// lockOften locks and releases, and returns how long that took, in order.
func lockOften(ctx context.Context, c *lockkeeper.Client, pairs int) ([]time.Duration, error) {
	took := make([]time.Duration, pairs)
	for i := range took {
		began := time.Now()
		h, err := c.Lock(ctx, "v/x")
		if err != nil {
			return nil, err
		}
		if err := h.Release(ctx); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took, nil
}

// lockMany makes a hundred large claims at once.
func lockMany(ctx context.Context, c *lockkeeper.Client) error {
	errs := make([]error, 100)
	var running sync.WaitGroup
	text := strings.Repeat("n", 500)
	for i := range errs {
		running.Go(func() {
			h, err := c.Lock(ctx, fmt.Sprint("v/many/", i), lockkeeper.WithNote(text), lockkeeper.WithLink(text))
			if err == nil {
				err = h.Release(ctx)
			}
			errs[i] = err
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("many claims at once: %w", err)
		}
	}
	return nil
}

// askHTTP asks whether the server lives, and for what only an identity is told, each by a
// connection of its own.
func askHTTP(web, secret string) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/healthz", "/v1/server"} {
		r, err := http.NewRequest("GET", "http://"+web+path, nil)
		if err != nil {
			return err
		}
		if path != "/healthz" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, answer.Status)
		}
	}
	return nil
}

// latency is how long a lock and its release take the victim.
type latency struct{ p50, p99, max time.Duration }

// measure has the victim lock and release so many times.
func (s *site) measure(pairs int) latency {
	s.Helper()
	s.victim.Send(fmt.Sprint(pairs))
	var p50, p99, longest int64
	if _, err := fmt.Sscan(s.victim.Read("locked"), &p50, &p99, &longest); err != nil {
		s.Fatal(err)
	}
	return latency{time.Duration(p50), time.Duration(p99), time.Duration(longest)}
}
