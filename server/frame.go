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
	if length <= ownFrame {
		err := decode(f, begun)
		_, _ = c.in.Discard(length) // it is there
		return 0, err
	}
	ctx, cancel := context.WithTimeout(c.server.life, frameTime)
	defer cancel()
	until, _ := ctx.Deadline()
	if err := c.readBy(until); err != nil {
		return 0, err
	}
	grow := func(n int) error {
		if err := c.usage.TakeRoom(ctx, n); err != nil {
			return err
		}
		room += n
		return nil
	}
	if err := grow(firstRoom); err != nil {
		return room, err
	}
	buffer := frames.Get().(*[firstRoom]byte)
	defer frames.Put(buffer)
	message, err := wire.ReadMessage(c.in, length, buffer[:], grow)
	if err == nil {
		err = decode(f, message)
	}
	if err == nil {
		err = c.readBy(time.Time{})
	}
	return room, err
}

// frames are buffers for what is larger than ownFrame.
var frames = sync.Pool{New: func() any { return new([firstRoom]byte) }}

// decode reads a message, of which f keeps nothing.
func decode(f *wire.ClientFrame, message []byte) error {
	if err := wire.CheckElements(message); err != nil {
		return err
	}
	if err := f.UnmarshalVT(message); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrFrame, err)
	}
	return nil
}
