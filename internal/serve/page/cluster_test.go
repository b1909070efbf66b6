package page_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestClusterInABrowser: the page shows the nodes of a cluster as they come and go, and its alarms on every
// view; to an identity that may not look at everything it shows nothing of them.
func TestClusterInABrowser(t *testing.T) {
	testmode.NeedLong(t, "a browser starts in seconds; the server's part is in package httpapi")
	c := startChromium(t)
	whole := lockkeeper.ClusterStatus{
		Cluster: "k3v9", Node: "one", State: lockkeeper.NodeReady, Leader: "two", Term: 3, Applied: 1234, Rules: 2,
		Voters: 3, Majority: 2, Live: 3,
		Nodes: []lockkeeper.NodeStatus{
			{Name: "one", ID: "1", Clients: "10.0.0.1:7420", Rank: "8", Role: lockkeeper.NodeVoter, Reached: true},
			{Name: "three", ID: "3", Clients: "10.0.0.3:7420", Rank: "8", Role: lockkeeper.NodeVoter, Reached: true},
			{Name: "two", ID: "2", Clients: "10.0.0.2:7420", Rank: "0", Role: lockkeeper.NodeVoter, Leads: true, Reached: true},
		},
	}
	var now atomic.Pointer[lockkeeper.ClusterStatus]
	now.Store(&whole)
	w := newTown(t, func() lockkeeper.ClusterStatus { return *now.Load() })
	w.claim(`{"path":"site/eu","as":"deploy","note":"release 41"` + long)
	c.resizes(1360, 860, "light")
	w.login(c, "ops")
	c.shows("3 of 3 nodes")
	c.shows("two leads")
	look(t, c, "light", 1360, "cluster-overview")
	c.presses("c")
	c.awaits(`document.querySelector(".panel h2").textContent === "Nodes"`)
	c.awaits(`document.querySelectorAll(".nodes li").length === 3`)
	c.presses("Escape")
	c.awaits(`document.querySelector(".panel h2").textContent === "Now"`)

	lost := whole
	lost.State, lost.Since, lost.Leader, lost.Live = lockkeeper.NodeNoQuorum, 90*time.Second, "", 1
	lost.Alarms = []lockkeeper.Alarm{{
		Kind:   lockkeeper.AlarmNotReached,
		Node:   "two",
		Text:   `node "two", a voter, has not been reached for 1m30s: <b>refused</b>`,
		Remedy: "start it, or mend the network to it",
	}}
	lost.Nodes = []lockkeeper.NodeStatus{whole.Nodes[0], whole.Nodes[1], whole.Nodes[2]}
	for i := range lost.Nodes[1:] {
		n := &lost.Nodes[1+i]
		n.Reached, n.Leads, n.Silent, n.Error = false, false, 90*time.Second, "connection refused"
	}
	now.Store(&lost)
	c.shows("1 of 3 nodes")
	c.shows("1 of 3 voters reached, 2 needed; none leads.")
	c.shows("<b>refused</b>")
	c.shows("To do: start it")
	c.eval(`document.querySelector(".row.claim").click()`)
	c.shows("The cluster: No quorum for")
	c.eval(`document.querySelector(".chip.nodes").click()`)
	c.awaits(`document.querySelector("ul.nodes").textContent.includes("not reached for 1\u00a0min\u00a030\u00a0s")`)
	c.eval(loadAxe(t) + "; undefined")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1360, 390} {
			c.resizes(width, 860, scheme)
			look(t, c, scheme, width, "cluster-lost")
			if found := c.eval(serious); found != "" {
				t.Errorf("in %s, %d wide: %v", scheme, width, found)
			}
		}
	}
	now.Store(&whole)
	c.shows("3 of 3 nodes")
	c.awaits(`document.querySelector(".banner").hidden`)

	c.resizes(1360, 860, "light")
	c.presses("Escape")
	c.eval(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Log out").click()`)
	c.shows("This server asks for a token")
	w.login(c, "eye")
	c.shows("release 41")
	c.awaits(`document.querySelector(".chip.nodes").hidden`)
	if wrong := c.errors(); wrong != "" {
		t.Error("the browser reports: " + wrong)
	}
}
