package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// nodes are the servers that an Engine may use: those of its URL, and, once a server has stated that it
// is a node of a cluster, all nodes of that cluster. All of them keep the same claims. The lock of the
// engine guards it.
//
// The cluster's id decides whether a server belongs to the nodes: an address may lead to another server
// one day, and there the sessions of this client would look as if they had ended.
type nodes struct {
	only    bool     // the one server of the URL is meant, and no other; see OneServer
	given   []string // addresses of the URL
	learned []string // addresses of the cluster's nodes, as one of them stated them last
	cluster string   // the id of the cluster; "" while no server has stated one

	at      string               // address of the present or latest connection; "" before the first one
	self    string               // how the server there states its own address; "" if it does not
	last    bool                 // another server is preferred to at, in any case
	avoided map[string]time.Time // when the client left the server at an address that could serve no claims
	refused time.Time            // since when all servers that answer refuse the client; zero: they do not
}

type oneServer struct{}

// OneServer returns a context under which [Open] uses only the one server of its URL, even while that drains or reaches
// no leader of its cluster. It is for questions about that server.
func OneServer(ctx context.Context) context.Context { return context.WithValue(ctx, oneServer{}, true) }

// avoidTime is how long a client avoids a server that drains, or that reaches no leader of its cluster.
const avoidTime = 10 * time.Second

// all returns the addresses of all servers, each once.
func (n *nodes) all() []string {
	all := slices.Clone(n.given)
	for _, address := range n.learned {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// order returns the addresses in the order in which the next connection tries them. The first
// connection tries those of the URL in their order. After a loss the client tries another server
// first, and then again the one it lost, which may have started again. The others come in random
// order, so that the clients of a lost server spread, and those that the client avoids at the end.
func (n *nodes) order(now time.Time) []string {
	if n.at == "" {
		return slices.Clone(n.given)
	}
	var fresh, avoided []string
	for _, address := range n.all() {
		switch {
		case address == n.at || address == n.self:
		case n.avoids(address, now):
			avoided = append(avoided, address)
		default:
			fresh = append(fresh, address)
		}
	}
	for _, some := range [][]string{fresh, avoided} {
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	}
	var order []string
	if n.last {
		order = append(append(fresh, avoided...), n.at)
	} else {
		order = append(slices.Insert(fresh, min(1, len(fresh)), n.at), avoided...)
	}
	if n.self != "" && n.self != n.at {
		order = append(order, n.self)
	}
	return order
}

func (n *nodes) avoids(address string, now time.Time) bool {
	since, known := n.avoided[address]
	return known && now.Sub(since) < avoidTime
}

// connected records a connection to the server at an address.
func (n *nodes) connected(address string, stated *lockkeeper.ClusterNodes) {
	n.at, n.self, n.last, n.refused = address, "", false, time.Time{}
	n.learn(stated)
}

// refusalTime is how long the servers that answer must have refused the client until it counts as refused though
// others do not answer. It is longer than a restart takes: a server that has just started may not have read the
// latest tokens.
const refusalTime = 30 * time.Second

// refusalLasts records whether all servers that answered an attempt refused the client, and reports whether they have
// done so for refusalTime, without an attempt in between that another server or none answered.
func (n *nodes) refusalLasts(refused bool, now time.Time) bool {
	switch {
	case !refused:
		n.refused = time.Time{}
		return false
	case n.refused.IsZero():
		n.refused = now
	}
	return now.Sub(n.refused) >= refusalTime
}

// learn records what the present server states.
func (n *nodes) learn(stated *lockkeeper.ClusterNodes) {
	if stated.ID != "" && !n.only {
		n.cluster, n.learned, n.self = stated.ID, stated.Addresses, stated.Self
	}
}

// check returns an error if the server at an address, which states those nodes, is another one than
// the servers that this client knows.
func (n *nodes) check(address string, stated *lockkeeper.ClusterNodes) error {
	switch {
	case n.cluster == "" || n.cluster == stated.ID:
		return nil
	case stated.ID == "":
		return fmt.Errorf("%s is a server of its own, and this client uses the claims of the cluster %s", address, n.cluster)
	}
	return fmt.Errorf("%s is a node of the cluster %s, and this client uses the claims of the cluster %s", address,
		stated.ID, n.cluster)
}

// leave reports whether the client should leave the present server, which can serve no claims, and
// selects the others for the next connection. The client stays if it avoids all of them. It also stays
// if it left this server less than avoidTime ago: it came back because no other one answered.
func (n *nodes) leave(now time.Time) bool {
	if n.avoids(n.at, now) {
		return false
	}
	for address, since := range n.avoided {
		if now.Sub(since) >= avoidTime {
			delete(n.avoided, address)
		}
	}
	n.avoided[n.at] = now
	n.last = slices.ContainsFunc(n.all(), func(address string) bool {
		return address != n.self && !n.avoids(address, now)
	})
	return n.last
}
