package wire

import "time"

// ServerState is how a server is: the answer to a request that asks about it.
type ServerState struct {
	Version     string        // of the server's program
	Uptime      time.Duration // since the server began
	Draining    string        // why it takes no new claims; "" if it does
	Held        int64         // claims
	Waiting     int64         // claims
	Sessions    int64
	Connections int64
	Engine      string // name of the engine that it exports
	Identity    string // whom it takes the asker for; "" where everybody may do everything
	Trouble     string // why its engine can take no claims at present; "" if it can
	Already     bool   // of a drain: the server has the version that was asked for, so nothing was done
	Began       bool   // of a drain: this request began it
}

// SendServerState makes a message of s.
func SendServerState(s *ServerState) *About {
	return &About{
		Version: s.Version, Uptime: sendDuration(s.Uptime), Draining: s.Draining, Held: s.Held, Waiting: s.Waiting,
		Sessions: s.Sessions, Connections: s.Connections, Engine: s.Engine, Identity: s.Identity,
		Already: s.Already, Began: s.Began,
		Trouble: s.Trouble,
	}
}

// Read is the state that a carries.
func (a *About) Read() ServerState {
	return ServerState{
		Version:  a.GetVersion(),
		Uptime:   readDuration(a.GetUptime()),
		Draining: a.GetDraining(),
		Held:     a.GetHeld(),
		Waiting:  a.GetWaiting(),
		Sessions: a.GetSessions(), Connections: a.GetConnections(), Engine: a.GetEngine(),
		Identity: a.GetIdentity(), Already: a.GetAlready(), Began: a.GetBegan(),
		Trouble: a.GetTrouble(),
	}
}
