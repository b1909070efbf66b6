package wire

import (
	"encoding/json"

	"github.com/lockkeeper/lockkeeper"
)

// NewAbout returns s as a message.
func NewAbout(s *lockkeeper.ServerState) *About {
	return &About{
		Version:       s.Version,
		Uptime:        newDuration(s.Uptime),
		Draining:      s.Draining,
		Held:          s.Held,
		Waiting:       s.Waiting,
		Sessions:      s.Sessions,
		Connections:   s.Connections,
		Engine:        s.Engine,
		Identity:      s.Identity,
		Already:       s.Already,
		Began:         s.Began,
		ClaimsRefused: s.ClaimsRefused,
		Cluster:       newCluster(s.Cluster),
	}
}

// Read returns the value of a.
func (a *About) Read() lockkeeper.ServerState {
	return lockkeeper.ServerState{
		Version:       a.GetVersion(),
		Uptime:        readDuration(a.GetUptime()),
		Draining:      a.GetDraining(),
		Held:          a.GetHeld(),
		Waiting:       a.GetWaiting(),
		Sessions:      a.GetSessions(),
		Connections:   a.GetConnections(),
		Engine:        a.GetEngine(),
		Identity:      a.GetIdentity(),
		Already:       a.GetAlready(),
		Began:         a.GetBegan(),
		ClaimsRefused: a.GetClaimsRefused(),
		Cluster:       readCluster(a.GetCluster()),
	}
}

// newCluster writes a cluster. It is for people, and asked for every few seconds; messages of its own
// would cost the command 45 KB.
func newCluster(s *lockkeeper.ClusterStatus) []byte {
	if s == nil {
		return nil
	}
	text, _ := json.Marshal(s) // every cluster can be written
	return text
}

// readCluster reads what newCluster writes. What it does not know is no cluster.
func readCluster(text []byte) *lockkeeper.ClusterStatus {
	s := new(lockkeeper.ClusterStatus)
	if len(text) == 0 || json.Unmarshal(text, s) != nil {
		return nil
	}
	return s
}
