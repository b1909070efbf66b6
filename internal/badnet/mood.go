package badnet

import "time"

// Way is what happens to one direction of a connection.
type Way struct {
	// Delay is the longest time for which each write is kept back; writes stay in
	// their order.
	Delay time.Duration

	// Stall keeps everything back until the mood changes. Then it goes on, as when
	// lost packets are sent again.
	Stall bool

	// Swallow takes everything and passes on nothing, while both ends stay
	// connected. Such a connection is of no use any more, and is cut when the mood
	// changes.
	Swallow bool

	// Drip passes on single bytes.
	Drip bool

	// Break cuts the connection in the middle of the next write.
	Break bool
}

// Mood is how a connection behaves at present. The zero Mood is a good network.
type Mood struct {
	Up, Down Way // to the server, to the client

	// Twice is how many of a hundred frames to the server are sent a second time
	// at once.
	Twice int

	// Hold keeps the frames to the server in store, until [Proxy.Part] or the
	// weather cuts the connection towards the client and delivers them late. If the
	// mood changes before that they are delivered at once.
	Hold bool
}

// spoils reports whether a connection that had this mood is of no use after it.
func (m Mood) spoils() bool { return m.Up.Swallow || m.Down.Swallow }
