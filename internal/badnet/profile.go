package badnet

import "time"

// Direction is the behaviour of one direction of a connection.
type Direction struct {
	// Delay bounds a random delay of each write. Writes stay in order.
	Delay time.Duration

	// Stall keeps all data back until the profile changes, and then delivers it, as retransmissions
	// do.
	Stall bool

	// Discard drops all data while both ends stay connected. The stream is unusable afterwards, so the
	// connection is cut when the profile changes.
	Discard bool

	// Drip sends single bytes.
	Drip bool

	// Break cuts the connection within the next write.
	Break bool
}

// Profile is the current behaviour of a connection. The zero Profile has no faults.
type Profile struct {
	Up, Down Direction // to the server, to the client

	// Duplicate is the percentage of frames to the server that are sent twice.
	Duplicate int

	// Hold keeps the frames to the server until [Proxy.CutClients] or the schedule cuts the connection
	// to the client and delivers them late. If the profile changes before that, they are delivered at
	// once.
	Hold bool
}

// unusable reports whether a connection is unusable after this profile.
func (m Profile) unusable() bool { return m.Up.Discard || m.Down.Discard }
