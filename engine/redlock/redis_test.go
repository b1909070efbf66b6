package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redislink"
	"github.com/lockkeeper/lockkeeper/internal/testca"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// urlOf returns the URL of servers.
func urlOf(servers ...*testdb.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return "redis://" + strings.Join(all, ",")
}

// lockOnce opens the engine, and takes and releases a lock.
func lockOnce(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, err := lockkeeper.Open(ctx, url)
	if err != nil {
		return err
	}
	c := lockkeeper.New(e)
	defer c.Close()
	h, err := c.Lock(ctx, "db")
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

func TestLockOverRealServers(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var servers []*testdb.Server
			for range n {
				servers = append(servers, testdb.Redis(t))
			}
			if err := lockOnce(t, urlOf(servers...)); err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				return
			}
			if err := servers[n-1].Kill(); err != nil {
				t.Fatal(err)
			}
			if err := lockOnce(t, urlOf(servers...)); err != nil {
				t.Errorf("without one of %d: %v", n, err)
			}
		})
	}
}

// evicting returns a server with a bound of its memory.
func evicting(t *testing.T, policy string) *testdb.Server {
	return testdb.Redis(t, testdb.Set("maxmemory", "50mb"), testdb.Set("maxmemory-policy", policy))
}

func TestUnfitServersAreRefused(t *testing.T) {
	primary := testdb.Redis(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	for name, c := range map[string]struct {
		server *testdb.Server
		word   string
	}{
		"cluster":  {testdb.Redis(t, testdb.Set("cluster-enabled", "yes")), "Redis Cluster"},
		"replica":  {testdb.Redis(t, testdb.Set("replicaof", host+" "+port)), "replica"},
		"eviction": {evicting(t, "allkeys-lru"), "allkeys-lru"},
	} {
		err := lockOnce(t, urlOf(c.server))
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want ErrInvalid and %q", name, err, c.word)
		}
	}
	if err := lockOnce(t, urlOf(evicting(t, "volatile-lru"))); err != nil {
		t.Errorf("volatile-lru: %v", err)
	}
	_, number, _ := strings.Cut(primary.Addr(), ":")
	twice := "redis://127.0.0.1:" + number + ",localhost:" + number + "," + testdb.Redis(t).Addr()
	if err := lockOnce(t, twice); !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "same server") {
		t.Errorf("one server twice: %v", err)
	}
	for facts, word := range map[redisconn.Facts]string{
		{Mode: "sentinel", Role: "master", Version: "7.0.0"}:    "Sentinel",
		{Mode: "standalone", Role: "master", Version: "6.0.16"}: "6.2",
	} {
		if err := facts.Refusal(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v, want %q", facts, err, word)
		}
	}
}

// ask sends a command to a server, as an operator does.
func ask(t *testing.T, s *testdb.Server, command ...any) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	if err := c.Do(t.Context(), command...).Err(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

// A user with the rights that a refusal names can do everything.
func TestUserNeedsNamedRightsAlone(t *testing.T) {
	s := testdb.Redis(t)
	ask(t, s, "ACL", "SETUSER", "none", "on", ">secret", "~other:*", "+@all")
	err := lockOnce(t, "redis://none:secret@"+s.Addr())
	if !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), "~lockkeeper:*") {
		t.Errorf("a user without rights: %v, want ErrDenied and the rights", err)
	}
	if err := lockOnce(t, "redis://none:wrong@"+s.Addr()); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("a wrong password: %v, want ErrDenied", err)
	}
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret"}
	for rule := range strings.FieldsSeq(redislink.Rights("lockkeeper:")) {
		rules = append(rules, rule)
	}
	ask(t, s, rules...)
	if err := lockOnce(t, "redis://app:secret@"+s.Addr()); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("../../docs/engines/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, stated, _ := strings.Cut(string(page), "user lockkeeper on >PASSWORD ")
	stated, _, _ = strings.Cut(stated, "```")
	if want := strings.Fields(redislink.Rights("lockkeeper:")); !slices.Equal(strings.Fields(stated), want) {
		t.Errorf("the page has other rights than %s", strings.Join(want, " "))
	}
	t.Setenv(passwordVariable, "secret")
	if err := lockOnce(t, "redis://app@"+s.Addr()); err != nil {
		t.Errorf("the password in %s: %v", passwordVariable, err)
	}
	t.Setenv(passwordVariable, "")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := lockOnce(t, "redis://app@"+s.Addr()+"?password_file="+file); err != nil {
		t.Errorf("the password in a file: %v", err)
	}
}

// A majority that lost its data is refused with the command that helps, and that command helps.
func TestResetStartsNewSet(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	url := urlOf(servers...)
	if err := lockOnce(t, url); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[1:] {
		ask(t, s, "FLUSHALL")
	}
	err := lockOnce(t, url)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "lk reset") {
		t.Errorf("%v, want ErrUnavailable and the command", err)
	}
	lost, err := Reset(t.Context(), url, false)
	if err != nil || strings.Count(lost, "\n") != 3 || !strings.Contains(lost, "nothing is stored") {
		t.Errorf("%q, %v", lost, err)
	}
	if err := lockOnce(t, url); err == nil {
		t.Error("looking at what would be lost has changed something")
	}
	if _, err := Reset(t.Context(), url, true); err != nil {
		t.Fatal(err)
	}
	if err := lockOnce(t, url); err != nil {
		t.Error(err)
	}
	if err := lockOnce(t, urlOf(servers[0])); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("one server of three: %v, want ErrInvalid", err)
	}
	if err := lockOnce(t, urlOf(servers[1], servers[0], servers[2])); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("another order: %v, want ErrInvalid", err)
	}
}

// A client of the application is used as it is, and stays open. Clients of several servers are refused.
func TestClientOfApplication(t *testing.T) {
	s := testdb.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	server, err := GoRedis(client)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(t.Context(), []Server{server}, Settings{Prefix: "app:"})
	if err != nil {
		t.Fatal(err)
	}
	c := lockkeeper.New(e)
	if _, err := c.Lock(t.Context(), "db"); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) == 0 ||
		!strings.HasPrefix(keys[0], "app:") {
		t.Errorf("keys %q, %v", keys, err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer cluster.Close()
	follower := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{s.Addr()}})
	defer follower.Close()
	for _, c := range []redis.UniversalClient{cluster, follower, (*redis.Client)(nil)} {
		if _, err := GoRedis(c); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%T: %v, want ErrInvalid", c, err)
		}
	}
}

// The server must show a certificate of the authority that the URL names, and may want one.
func TestTLS(t *testing.T) {
	ca := testca.New(t)
	server, client := ca.Server(), ca.Issue("app", time.Now().Add(time.Hour))
	var texts [][]byte
	for _, name := range []string{server.Cert, server.Key, ca.File} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	s := testdb.Redis(t, testdb.TLS(texts[0], texts[1], texts[2]))
	url := "rediss://" + s.Addr()
	if err := lockOnce(t, url+"?ca="+ca.File+"&cert="+client.Cert+"&key="+client.Key); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{
		url, url + "?ca=" + ca.File, "redis://" + s.Addr(), url + "?ca=" + testca.New(t).File,
	} {
		if err := lockOnce(t, wrong); err == nil {
			t.Errorf("%s: a server that can't be verified is used", wrong)
		}
	}
}
