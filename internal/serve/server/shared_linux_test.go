package server_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func init() {
	engines["database"] = func(ctx context.Context, url string) (lockkeeper.Engine, error) {
		return sqllock.Open(ctx, url)
	}
}

// onDatabases runs a test with a database for several servers.
func onDatabases(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("postgres", func(t *testing.T) { test(t, testdb.SharedPostgres(t).Database(t)) })
	t.Run("mariadb", func(t *testing.T) { test(t, testdb.SharedMariaDB(t).Database(t)) })
}

// at opens a client of servers, of the first as long as that answers. Its leases are so long that nothing
// in a test is found by a renewal that nothing triggered.
func at(t *testing.T, name, addresses string) *lockkeeper.Client {
	t.Helper()
	c := lockkeeper.New(open(t, addresses), lockkeeper.SessionID(name), lockkeeper.SessionTTL(10*time.Minute))
	t.Cleanup(func() { c.Close() })
	return c
}

func locked(t *testing.T, c *lockkeeper.Client, path string) *lockkeeper.Hold {
	t.Helper()
	h, err := c.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// together waits until all sessions are attached by one process, where a test can see that.
func together(t *testing.T, url string) {
	t.Helper()
	if !strings.HasPrefix(url, "postgres") {
		return
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(soon); ; <-tick.C {
		if err := db.QueryRowContext(t.Context(), "SELECT count(DISTINCT process) FROM lockkeeper.sessions").Scan(
			&n); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("sessions are attached by %d processes, %s after one was killed", n, soon)
		}
	}
}

// soon bounds events that happen at once on a fast computer.
const soon = 5 * time.Second

// A client whose server is killed continues at another one of the same database: with its session, its
// holds and its positions, and it gets its hints there.
func TestServersOfOneDatabase(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		one, two := serve(t, ownAddress(t), "database", url), serve(t, ownAddress(t), "database", url)
		client, other := at(t, "client", one.address+","+two.address), at(t, "other", two.address)
		kept, taken := locked(t, client, "db"), locked(t, other, "site")
		waiting, err := client.Enqueue(t.Context(), lockkeeper.Exclusive("site"))
		if err != nil {
			t.Fatal(err)
		}
		behind, err := other.Enqueue(t.Context(), lockkeeper.Exclusive("site"))
		if err != nil {
			t.Fatal(err)
		}
		one.Kill()
		together(t, url)
		st, err := waiting.Status(t.Context())
		for end := time.Now().Add(soon); errors.Is(err, lockkeeper.ErrUnavailable) && time.Now().Before(end); {
			st, err = waiting.Status(t.Context()) // it was on its way to the dead server
		}
		if err != nil || st.State != lockkeeper.Waiting || st.Position != 1 {
			t.Errorf("in line: %+v, %v", st, err)
		}
		began := time.Now()
		if err := taken.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		got, err := waiting.Wait(ctx)
		if err != nil {
			t.Fatalf("not notified of its grant at the other server after %s: %v", time.Since(began), err)
		}
		t.Logf("granted after %s", time.Since(began))
		if kept.Err() != nil || got.Fence() <= kept.Fence() {
			t.Errorf("the hold: %v; fences %d, then %d", kept.Err(), kept.Fence(), got.Fence())
		}
		if _, err := other.TryLock(t.Context(), "db"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Errorf("a held path was granted to another claim: %v", err)
		}
		if err := errors.Join(got.Release(t.Context()), kept.Release(t.Context())); err != nil {
			t.Error(err)
		}
		if h, err := behind.Wait(ctx); err != nil {
			t.Error(err)
		} else if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A session that was attached at one server can be listed, followed, renewed, amended, revoked and ended
// through another one, with the session's key.
func TestThroughAnotherServer(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		one, two := serve(t, ownAddress(t), "database", url), serve(t, ownAddress(t), "database", url)
		here, there := open(t, one.address), open(t, two.address)
		defer here.Close()
		defer there.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		told := make(chan lockkeeper.Status, 100)
		attach := func(e lockkeeper.Engine, epoch uint64) lockkeeper.Key {
			t.Helper()
			s := lockkeeper.Session{ID: "moves", TTL: time.Hour, Epoch: epoch, Named: []uint64{1, 2}}
			lease, err := e.Attach(ctx, s, func(all []lockkeeper.Status) {
				for _, st := range all {
					told <- st
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			return lease.Key
		}
		claim := func(e lockkeeper.Engine, k lockkeeper.Key, id uint64, path lockkeeper.Path) lockkeeper.Status {
			t.Helper()
			w := lockkeeper.Want{
				ID:      id,
				Wait:    lockkeeper.Forever,
				Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
			}
			st, err := e.Claim(ctx, k, w)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		k := attach(here, 0)
		made := claim(here, k, 1, "db")
		if again := claim(there, k, 1, "db"); again.Fence != made.Fence || again.State != lockkeeper.Held {
			t.Errorf("repeated at the other server: %+v, want fence %d", again, made.Fence)
		}
		following, stop := context.WithCancel(ctx)
		defer stop()
		seen := make(chan lockkeeper.Status, 100)
		go func() {
			for st, err := range there.List(following, lockkeeper.Query{Meets: "db", Follow: true}) {
				if err == nil {
					seen <- st
				}
			}
		}()
		if st := <-seen; st.State != lockkeeper.Held || st.Fence != made.Fence {
			t.Errorf("followed there: %+v", st)
		}
		if _, err := there.Renew(ctx, k); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("renewed there without having been attached there: %v", err)
		}
		k = attach(there, k.Epoch)
		if _, err := there.Renew(ctx, k); err != nil {
			t.Errorf("renewed there: %v", err)
		}
		// The request to yield is made at one server, and the hint comes from the other.
		if err := at(t, "operator", one.address).Revoke(ctx, made.Ref, false, lockkeeper.Label{As: "operator"}); err != nil {
			t.Fatal(err)
		}
		for asked := false; !asked; {
			select {
			case st := <-told:
				asked = st.Asked != nil && st.Asked.As == "operator"
			case <-ctx.Done():
				t.Fatal("the holder is not notified that it is asked to yield")
			}
		}
		if err := here.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Errorf("released here: %v", err)
		}
		for ended := false; !ended; {
			select {
			case st := <-seen:
				ended = st.State == lockkeeper.Ended
			case <-ctx.Done():
				t.Fatal("the follower does not get the end")
			}
		}
	})
}

// Servers of one database are killed in turn at random moments, and started again, while clients with
// all their addresses continue: answered calls are not lost, fences rise, and no two holders meet.
func TestKilledServersOfOneDatabase(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		seed := testmode.Seed(t)
		random := rand.New(rand.NewPCG(seed, 0))
		servers := []*serving{serve(t, ownAddress(t), "database", url), serve(t, ownAddress(t), "database", url)}
		addresses := []string{servers[0].address + "," + servers[1].address, servers[1].address + "," + servers[0].address}
		looker := open(t, addresses[0])
		rules := history.RulesOf(looker.Guarantees())
		looker.Close()
		c := stress.New(seed, rules)
		const rounds = 4
		for i := range 6 {
			join(t, c, addresses[i%2], 1, 2, 5*time.Second)
		}
		for round := range rounds {
			for busy, end := c.Granted.Load()+20, time.Now().Add(patience); c.Granted.Load() < busy && time.Now().Before(end); {
				<-time.After(time.Millisecond)
			}
			<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond)
			victim := servers[round%2]
			victim.Kill()
			servers[round%2] = serve(t, victim.address, "database", url)
		}
		judged(t, c, fmt.Sprintf("after %d kills", rounds))
		t.Logf("%s; fences up to %d", c, c.Fence())
		if err := stress.CheckFree(open(t, addresses[0]), patience); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if lost := c.Lost.Load(); lost > 0 {
			t.Errorf("%d holds were lost, though a server was there all the time", lost)
		}
	})
}
