package httpapi

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// twoNodes is a cluster whose node two is lost.
var twoNodes = lockkeeper.ClusterStatus{
	Cluster: "k3v9", Node: "one", State: lockkeeper.NodeNoQuorum, Since: 1500 * time.Millisecond, Term: 4, Applied: 17,
	Rules: 2, Voters: 3, Majority: 2, Live: 1,
	Nodes: []lockkeeper.NodeStatus{
		{Name: "one", ID: "0123456789abcdef", Address: "10.0.0.1:7430", Clients: "10.0.0.1:7420", Rank: "8",
			Role: lockkeeper.NodeVoter, Reached: true},
		{Name: "two", ID: "fedcba9876543210", Address: "10.0.0.2:7430", Rank: "off", Role: lockkeeper.NodeLearner,
			Silent: 2 * time.Second, Error: "connection refused"},
	},
	Alarms: []lockkeeper.Alarm{{
		Kind:   lockkeeper.AlarmNotReached,
		Node:   "two",
		Text:   `node "two", a learner, has not been reached for 2s: connection refused`,
		Remedy: "start it",
	}},
}

// The nodes of a cluster are shown to an identity that may look at everything, and to no other one. A
// server without a cluster has none to show.
func TestClusterIsForThoseWhoSeeEverything(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.want(w.ask("GET", "/v1/cluster", ""), 501, "unsupported")
		w.apis[0].options.Cluster = func() lockkeeper.ClusterStatus { return twoNodes }
		shown := func(headers ...string) {
			t.Helper()
			a := w.want(w.ask("GET", "/v1/cluster", "", headers...), 200, "")
			var got lockkeeper.ClusterStatus
			if err := json.Unmarshal([]byte(a.text), &got); err != nil || !reflect.DeepEqual(got, twoNodes) {
				t.Errorf("%s (%v)", a.text, err)
			}
		}
		shown() // everybody may do everything
		ci, _, ops, _ := w.guard()
		shown(ops)
		w.want(w.ask("GET", "/v1/cluster", "", ci), 403, "denied")
		w.want(w.ask("GET", "/v1/cluster", ""), 401, "unauthenticated")
		w.want(w.ask("GET", "/v1/cluster?node=one", "", ops), 400, "invalid")
	})
}

// The page is told whether it may ask for the nodes.
func TestPageIsToldOfTheCluster(t *testing.T) {
	h := newHouse(t)
	for _, has := range []bool{false, true} {
		if has {
			h.options.Cluster = func() lockkeeper.ClusterStatus { return twoNodes }
		}
		for secret, sees := range map[string]bool{h.ops: has, h.eye: false} {
			b := (&surfer{T: t, api: h.API}).login(secret)
			var said sessionAnswer
			if err := json.Unmarshal(b.want(200, "GET", "/page/session", "").Body.Bytes(), &said); err != nil ||
				said.Cluster != sees {
				t.Errorf("cluster %v: %+v, %v", has, said, err)
			}
		}
	}
}
