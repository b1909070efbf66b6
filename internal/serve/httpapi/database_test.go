package httpapi

import (
	"os"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// TestPollsAtAnotherServer: a poll at one server returns a change made at another server of the
// same database.
func TestPollsAtAnotherServer(t *testing.T) {
	url := testdb.SharedPostgres(t).Database(t)
	w := twoServers(t, database(t, url), database(t, url))
	at := func(host, method, path, body string) answer {
		t.Helper()
		a, err := w.try(t.Context(), host, method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, poll := range []struct{ host, method, rest string }{
		{"server0", "POST", "/renew?poll=20s"}, {"server1", "POST", "/renew?poll=20s"}, {"server1", "GET", "?poll=20s"},
	} {
		for _, releases := range []string{"server0", "server1"} {
			held := at("server0", "POST", "/v1/claims", `{"path":"db"}`)
			waits := at("server0", "POST", "/v1/claims?poll=0s", `{"path":"db","wait":"1m"}`)
			told := make(chan answer, 1)
			go func() {
				a, err := w.try(t.Context(), poll.host, poll.method, waits.header.Get("Location")+poll.rest, "")
				if err != nil {
					t.Error(err)
				}
				told <- a
			}()
			at(releases, "DELETE", held.header.Get("Location"), "")
			began := time.Now()
			if a := <-told; a.State != lockkeeper.Held || time.Since(began) > 10*time.Second {
				t.Errorf("%s %s at %s, released at %s: after %s %s", poll.method, poll.rest, poll.host, releases, time.Since(began),
					a.text)
			}
			at("server0", "DELETE", waits.header.Get("Location"), "")
		}
	}
}

// database opens the locks in a database for one server.
func database(t *testing.T, url string) lockkeeper.Engine {
	t.Helper()
	e, err := sqllock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
