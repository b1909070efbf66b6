// Package redisconn reaches one Redis server: the narrow interface that the engine needs, and
// go-redis behind it.
package redisconn

import (
	"context"
	"errors"
)

// A Pipeliner sends commands to one Redis server. It is safe for concurrent use.
type Pipeliner interface {
	// Pipeline sends the commands on one connection, in order, in one write, and returns a reply
	// for each: string, int64, []any of these, or nil. An error reply of Redis is a value of type
	// [ReplyError], and no err. err is for a connection that failed: it matches [ErrUnsent] if the
	// server certainly received nothing; else it is unknown which commands were executed. Pipeline
	// never sends a command twice. An argument is a string, []byte, int, int64 or uint64.
	Pipeline(ctx context.Context, commands [][]any) ([]any, error)
}

// A Server is one Redis server as the redlock engine uses it. It is safe for concurrent use.
type Server interface {
	// Address names the server in messages for people, such as "10.0.0.1:6379". It has no password.
	Address() string

	// Its pipelines take any connection.
	Pipeliner

	// Connect returns a connection of its own for many pipelines, which are sent one after another.
	// The first one connects, or takes a connection that is idle.
	Connect() Connection

	// Subscribe subscribes to the channels on a connection of its own, calls ready, and then
	// deliver with each message in order, until ctx ends or the connection fails; it returns why. It
	// never connects again by itself: all messages of one call come from one process.
	Subscribe(ctx context.Context, channels []string, ready func(), deliver func(channel, payload string)) error

	// Close ends the connections that the Server has opened itself. An adapter leaves the client of
	// an application open.
	Close() error
}

// A Connection is one connection to one process. It never connects again: once a pipeline has failed,
// by its ctx too, all later ones fail. So whatever a process says of itself in one of its pipelines is
// true of all that answers in the later ones.
type Connection interface {
	Pipeliner
	Close() error
}

// ReplyError is an error that Redis answered to one command, such as "NOSCRIPT No matching script".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// ErrUnsent: the server received nothing.
var ErrUnsent = errors.New("nothing was sent")
