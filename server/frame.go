package server

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/wire"
)

// frame reads one frame into f. It returns how much room of the identity that takes until its
// requests are answered.
//
// A frame of up to ownFrame bytes is read from the connection's own buffer. A larger one takes
// room as it arrives: at most four times as much as has arrived, so that an announced length
// costs nothing.
func (c *conn) frame(f *wire.ClientFrame, limit int) (room int, err error) {
	length, err := wire.ReadLength(c.in, limit)
	if err != nil {
		return 0, err
	}
	begun, err := c.in.Peek(min(length, ownFrame))
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if length > ownFrame {
		return c.largeFrame(f, length)
	}
	err = c.decode(f, begun, 0, c.grow(c.server.life, &room))
	_, _ = c.in.Discard(length) // it is there
	return room, err
}

// largeFrame is frame for one that is larger than ownFrame.
func (c *conn) largeFrame(f *wire.ClientFrame, length int) (room int, err error) {
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
		err = c.decode(f, message, room, grow)
	}
	if err == nil {
		err = c.readBy(time.Time{})
	}
	return room, err
}

// grow returns a function that takes more room for a frame.
func (c *conn) grow(ctx context.Context, room *int) func(int) error {
	return func(n int) error {
		if c.usage == nil { // of a hello, which is small, and forgotten at once
			return nil
		}
		err := c.usage.TakeRoom(ctx, n)
		if err == nil {
			*room += n
		}
		return err
	}
}

// frames are buffers for what is larger than ownFrame.
var frames = sync.Pool{New: func() any { return new([firstRoom]byte) }}

// elementRoom is what an element takes once it is decoded, which may have two bytes before.
const elementRoom = 256

// decode reads a message, of which f keeps nothing. If it has many elements it takes room for
// them first, beyond what the frame has already.
func (c *conn) decode(f *wire.ClientFrame, message []byte, room int, grow func(int) error) error {
	n, err := wire.CheckElements(message)
	if err != nil {
		return err
	}
	if more := n*elementRoom - room; more > 0 {
		if err := grow(more); err != nil {
			return err
		}
	}
	if err := f.UnmarshalVT(message); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrFrame, err)
	}
	return nil
}
