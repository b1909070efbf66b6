package redislink

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// crossed is a server whose connections for requests lead to another one while wrong is set, as a
// balancer between the party and its servers may do.
type crossed struct {
	redisconn.Server
	other redisconn.Server
	wrong atomic.Bool
}

func (c *crossed) Connect() redisconn.Connection {
	if c.wrong.Load() {
		return c.other.Connect()
	}
	return c.Server.Connect()
}

// A link is not up while its connection for requests leads to another process than its subscription.
func TestConnectionToAnotherProcessCarriesNoRequests(t *testing.T) {
	own := func() redisconn.Server { return redisconn.OwnGoRedis(&redis.Options{Addr: testdb.Redis(t).Addr()}) }
	c := &crossed{Server: own(), other: own()}
	defer c.other.Close()
	c.wrong.Store(true)
	w := watchConns(t, "me", []redisconn.Server{c})
	w.await("the refusal", func() bool {
		return w.state[0] == "down" && strings.Contains(w.last[0].Error(), "leads to several servers")
	})
	c.wrong.Store(false)
	w.awaitStates("up")
}

// A connection that has failed leads nowhere, also when its server is back: requests must not reach a
// process that was not asked for its run id.
func TestConnectionNeverConnectsAgain(t *testing.T) {
	server := testdb.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	applications, err := redisconn.GoRedis(client)
	if err != nil {
		t.Fatal(err)
	}
	own := redisconn.OwnGoRedis(&redis.Options{Addr: server.Addr()})
	defer own.Close()
	ping := [][]any{{"PING"}}
	var all []redisconn.Connection
	for _, s := range []redisconn.Server{own, applications} {
		c := s.Connect()
		defer c.Close()
		if replies, err := c.Pipeline(t.Context(), ping); err != nil || replies[0] != "PONG" {
			t.Fatalf("%v, %v", replies, err)
		}
		all = append(all, c)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		for range 3 {
			if replies, err := c.Pipeline(t.Context(), ping); err == nil {
				t.Errorf("connection %d: another process answers %v", i, replies)
			}
		}
	}
	if replies, err := own.Pipeline(t.Context(), ping); err != nil {
		t.Errorf("%v, %v", replies, err)
	}
}
