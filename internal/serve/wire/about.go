package wire

import "github.com/lockkeeper/lockkeeper"

// NewAbout returns s as a message.
func NewAbout(s *lockkeeper.ServerState) *About {
	return &About{
		Version:     s.Version,
		Uptime:      newDuration(s.Uptime),
		Draining:    s.Draining,
		Held:        s.Held,
		Waiting:     s.Waiting,
		Sessions:    s.Sessions,
		Connections: s.Connections,
		Engine:      s.Engine,
		Identity:    s.Identity,
		Already:     s.Already,
		Began:       s.Began,
		Trouble:     s.Trouble,
	}
}

// Read returns the value of a.
func (a *About) Read() lockkeeper.ServerState {
	return lockkeeper.ServerState{
		Version:     a.GetVersion(),
		Uptime:      readDuration(a.GetUptime()),
		Draining:    a.GetDraining(),
		Held:        a.GetHeld(),
		Waiting:     a.GetWaiting(),
		Sessions:    a.GetSessions(),
		Connections: a.GetConnections(),
		Engine:      a.GetEngine(),
		Identity:    a.GetIdentity(),
		Already:     a.GetAlready(),
		Began:       a.GetBegan(),
		Trouble:     a.GetTrouble(),
	}
}
