// Package link is the contract between the redlock engine and what carries its requests to one
// server: a connection to Redis, or memory in tests. The engine has one Link for each server of the
// set.
//
//	             Up                     Down
//	down ─────────────────> up ──────────────────> down
//	 │                       │         Lost
//	 │        Lost           └───────────────────> lost
//	 └──────────────────────────────────────────>   │
//	 lost <─────────────────────────────────────────┘
//	   └── Up, when the server is a member again: condition 2 of the protocol ──> up
//
// A Link is down at first. The engine calls Do only while the Link is up.
package link

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

var (
	// ErrUnsent says that the server received nothing of the requests.
	ErrUnsent = errors.New("the request was not sent")

	// ErrLost says that the server lost its data, or came back without proof that it did not. What
	// it answered before is void.
	ErrLost = errors.New("the server lost its data")

	// ErrDown says that the server is not reachable, or may not be used.
	ErrDown = errors.New("the server can't be used at present")
)

// A Link carries requests to one server, and brings its messages. It is safe for concurrent use.
type Link interface {
	// Do executes the requests in order, in one pipeline, and returns a reply for each. All replies
	// come from the same life of the same member of the set; otherwise Do returns none of them, and
	// an error. The error matches ErrUnsent if the server certainly executed nothing, and ErrLost
	// if it lost its data. After any other error it is unknown which requests the server executed,
	// now or later.
	//
	// Do does not keep requests when it has returned.
	//
	// Do calls Events.Down or Events.Lost before it returns an error. The end of ctx counts as a
	// failure of the server, so ctx has a generous bound.
	Do(ctx context.Context, requests []quorum.Request) ([]quorum.Reply, error)

	// Watch keeps the link up until ctx ends: it connects, verifies that the server is a member of
	// the set, subscribes to the channel to, and calls e.Up; after a failure it starts again. It
	// calls the functions of e one at a time, and none after it has returned. Watch is called once,
	// before the first Do.
	Watch(ctx context.Context, to string, e Events)

	// Name names the server in messages for people: an address without secrets.
	Name() string
}

// Events are the functions that Watch calls. They return quickly, and do not call the Link.
type Events struct {
	// Up says that the server is a member of the set and lost nothing since the last Up; or, after
	// Lost, that it may take part again. The channel is subscribed.
	Up func()

	// Down says that the server does not answer, or that messages may have been missed. why is for
	// people.
	Down func(why error)

	// Lost says that the server lost its data: all its votes and promises are void. It is down.
	Lost func(why error)

	// Message delivers a message of the server. Messages may be late, doubled, out of order or
	// missing.
	Message func(quorum.Message)
}
