package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// What a node states arrives unchanged. What no client may use is left out before it is sent.
func TestClusterIsSentWithinItsBounds(t *testing.T) {
	stated := lockkeeper.ClusterNodes{
		ID:         "k3v9",
		Addresses:  []string{"10.0.0.5:7420", "[::1]:7420", "locks.example.org:1"},
		Self:       "[::1]:7420",
		Suspended:  "no leader",
		Outage:     true,
		QuorumLost: true,
	}
	message, err := NewCluster(&stated).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseCluster(message); err != nil || !reflect.DeepEqual(got, stated) {
		t.Errorf("%+v: %v", got, err)
	}
	bad := stated
	bad.Addresses = []string{"", "host", "host:", "host:0", "host:65536", ":7420", "0.0.0.0:7420", "[::]:7420", "a b:1",
		"a/b:1", strings.Repeat("a", maxAddress) + ":1", "user@host:1", "\xff:1"}
	bad.Suspended = strings.Repeat("é", maxSuspended)
	m := NewCluster(&bad)
	if len(m.Addresses) > 0 || m.Self != "" || len(m.Suspended) > maxSuspended {
		t.Errorf("sent %v", m)
	}
	if _, err := m.Read(); err != nil {
		t.Errorf("a client refuses it: %v", err)
	}
	for _, address := range bad.Addresses {
		if _, err := (&Cluster{Id: "k3v9", Addresses: []string{address}}).Read(); !errors.Is(err, ErrFrame) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if NewCluster(&lockkeeper.ClusterNodes{}) != nil {
		t.Error("a server without a cluster states one")
	}
}
