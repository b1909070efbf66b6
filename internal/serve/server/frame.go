package server

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// frame reads one frame into f. It returns the bytes that the identity is charged for until the
// frame's requests are answered.
//
// A frame of up to ownFrame bytes uses the connection's own buffer. A larger one takes room as it
// arrives: at most four times the bytes that have arrived, so that an announced length costs
// nothing.
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
	_, _ = c.in.Discard(length) // the buffer has it, so this can't fail
	return room, err
}

// largeFrame is frame for frames larger than ownFrame.
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

// decode decodes a message; f keeps no reference to its bytes. For a message with many elements it
// first takes room beyond that of the frame.
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
