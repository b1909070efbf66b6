package server

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// frame reads one frame and calls use with its message, which is valid only until use returns. It
// returns the bytes that the identity is charged for, and the error of use.
//
// A frame of up to ownFrame bytes uses the connection's own buffer. A larger one takes room as it
// arrives: at most four times the bytes that have arrived, so that an announced length costs
// nothing.
func (c *conn) frame(limit int, use func(message []byte) error) (room int, err error) {
	length, err := wire.ReadLength(c.in, limit)
	if err != nil {
		return 0, err
	}
	c.Received()
	begun, err := c.in.Peek(min(length, ownFrame))
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if length > ownFrame {
		return c.largeFrame(length, use)
	}
	if err = c.charge(begun, 0, c.grow(c.server.life, &room)); err == nil {
		err = use(begun)
	}
	_, _ = c.in.Discard(length) // the buffer has it, so this can't fail
	return room, err
}

// largeFrame is frame for frames larger than ownFrame.
func (c *conn) largeFrame(length int, use func([]byte) error) (room int, err error) {
	ctx, cancel := context.WithTimeout(c.server.life, frameTime)
	defer cancel()
	until, _ := ctx.Deadline()
	if err := c.readBy(until); err != nil {
		return 0, err
	}
	grow := c.grow(ctx, &room)
	if err := grow(firstRoom); err != nil {
		return room, err
	}
	buffer := frames.Get().(*[firstRoom]byte)
	defer frames.Put(buffer)
	message, err := wire.ReadMessage(c.in, length, buffer[:], grow)
	if err == nil {
		err = c.charge(message, room, grow)
	}
	if err == nil {
		err = c.readBy(time.Time{})
	}
	if err == nil {
		err = use(message)
	}
	return room, err
}

// grow returns a function that charges the identity for more bytes of a frame.
func (c *conn) grow(ctx context.Context, room *int) func(int) error {
	return func(n int) error {
		if c.usage == nil { // a hello is small, and freed at once
			return nil
		}
		err := c.usage.TakeRoom(ctx, n)
		if err == nil {
			*room += n
		}
		return err
	}
}

// frames has buffers for frames larger than ownFrame.
var frames = sync.Pool{New: func() any { return new([firstRoom]byte) }}

// elementRoom is the size of a decoded element, which may be only two bytes when encoded.
const elementRoom = 256

// charge takes room for the decoded elements of a message with many, beyond the room of the frame.
func (c *conn) charge(message []byte, room int, grow func(int) error) error {
	n, err := wire.CheckElements(message)
	if err != nil {
		return err
	}
	if more := n*elementRoom - room; more > 0 {
		return grow(more)
	}
	return nil
}
