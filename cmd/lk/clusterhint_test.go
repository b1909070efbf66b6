package main

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// The ports of a further node follow those of the node that is asked, as far as that states them.
func TestAddressesOfTheNodeThatIsAsked(t *testing.T) {
	for clients, want := range map[string][2]string{
		"10.0.0.2:27420":        {"10.0.0.1:27430", "10.0.0.2:27420"},
		"one.example.com:27420": {"10.0.0.1:27430", "10.0.0.1:27420"},
		"one.example.com:70000": {"10.0.0.1:27430", "10.0.0.1:7420"},
		"":                      {"10.0.0.1:27430", "10.0.0.1:7420"},
	} {
		peers, at := nodeAddresses(&lockkeeper.ClusterStatus{Node: "one", Nodes: []lockkeeper.NodeStatus{
			{Name: "other", Address: "10.0.0.9:1", Clients: "10.0.0.9:2"},
			{Name: "one", Address: "10.0.0.1:27430", Clients: clients},
		}})
		if got := [2]string{peers.String(), at.String()}; got != want {
			t.Errorf("clients at %q: %q, want %q", clients, got, want)
		}
	}
	if peers, at := nodeAddresses(&lockkeeper.ClusterStatus{}); peers.Port() != peerPort || at.Port() != serverPort {
		t.Errorf("of a node that says nothing: %s, %s", peers, at)
	}
	top, _ := nodeAddresses(&lockkeeper.ClusterStatus{Nodes: []lockkeeper.NodeStatus{{Address: "127.0.0.1:65535"}}})
	if got := portBeside(top, 2).String(); got != "127.0.0.1:65533" {
		t.Errorf("beside the highest port: %s", got)
	}
}
