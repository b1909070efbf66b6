package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Protocol is the version of the protocol.
const Protocol = 1

// Bounds in bytes.
const (
	MaxHello = 4 << 10 // of the first frame towards the server
	MaxFrame = 1 << 20 // of any other
	MaxName  = 128     // of the names in Hello and Welcome
)

// headRoom is the room before a frame's message for its length.
const headRoom = binary.MaxVarintLen32

// ErrFrame reports bytes that are not a frame of this protocol.
var ErrFrame = errors.New("not a frame of this protocol")

// ReadLength reads the length of the next frame, which is at most limit. It returns io.EOF if the
// stream ends before a frame begins, and ErrFrame if the length is invalid or above limit.
func ReadLength(r *bufio.Reader, limit int) (int, error) {
	first, err := r.Peek(1)
	if err != nil {
		return 0, err
	}
	if first[0] < 0x80 {
		_, _ = r.Discard(1) // it is in the buffer
		return within(uint64(first[0]), limit)
	}
	var size uint64
	for shift := 0; shift < 7*binary.MaxVarintLen32; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		size |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return within(size, limit)
		}
	}
	return 0, fmt.Errorf("%w: its length is no varint of 32 bits", ErrFrame)
}

func within(size uint64, limit int) (int, error) {
	if size > uint64(limit) {
		return 0, fmt.Errorf("%w: it announces %d bytes, of at most %d", ErrFrame, size, limit)
	}
	return int(size), nil
}

// ReadMessage reads the message of a frame after its length. It fills the capacity of room first,
// and allocates more only as bytes arrive: an announced length costs nothing. If grow is not nil,
// ReadMessage calls it with the number of bytes before it allocates them, and returns its error.
func ReadMessage(r *bufio.Reader, length int, room []byte, grow func(bytes int) error) ([]byte, error) {
	message := room[:0]
	for len(message) < length {
		have := len(message)
		piece := min(length-have, max(cap(message)-have, firstPiece, have))
		if have+piece > cap(message) {
			if grow != nil {
				if err := grow(have + piece - cap(message)); err != nil {
					return message[:0], err
				}
			}
			grown := make([]byte, have, have+piece)
			copy(grown, message)
			message = grown
		}
		message = message[:have+piece]
		if _, err := io.ReadFull(r, message[have:]); err != nil {
			return message[:0], unexpected(err)
		}
	}
	return message, nil
}

// firstPiece is the number of bytes that ReadMessage allocates before any of them has arrived.
const firstPiece = 16 << 10

// unexpected returns the error of a stream that ends within a frame.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
