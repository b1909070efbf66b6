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
	MaxHandshake = 4 << 10 // of the first frame towards the server
	MaxFrame     = 1 << 20 // of any other
	MaxName      = 128     // of the names in Hello and Welcome
)

// headRoom is the room before a frame's message for its length.
const headRoom = binary.MaxVarintLen32

// ErrFrame reports bytes that are not a frame of this protocol.
var ErrFrame = errors.New("not a frame of this protocol")

// ReadLength reads the length of the next frame, which is at most limit. It returns io.EOF if the
// stream ends before a frame begins, and ErrFrame if the length is invalid or above limit. After
// any other error it has consumed nothing, and may be called again.
func ReadLength(r *bufio.Reader, limit int) (int, error) {
	var size uint64
	for i := range binary.MaxVarintLen32 {
		head, err := r.Peek(i + 1)
		if err != nil {
			if i > 0 {
				err = unexpected(err)
			}
			return 0, err
		}
		size |= uint64(head[i]&0x7f) << (7 * i)
		if head[i] < 0x80 {
			_, _ = r.Discard(i + 1) // they are in the buffer
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

// ReadMessage reads the message of a frame after its length, into room as far as that is large
// enough; see ReadRest.
func ReadMessage(r *bufio.Reader, length int, room []byte, grow func(bytes int) error) ([]byte, error) {
	message, err := ReadRest(r, length, room[:0], grow)
	if err != nil {
		return message[:0], err
	}
	return message, nil
}

// ReadRest reads the rest of a message of which a part has been read. After an error it returns the
// part that has been read so far. It fills the capacity of the part first, and allocates more only
// as bytes arrive: an announced length costs nothing. If grow is not nil, ReadRest calls it with
// the number of bytes before it allocates them, and returns its error.
func ReadRest(r *bufio.Reader, length int, part []byte, grow func(bytes int) error) ([]byte, error) {
	for len(part) < length {
		have := len(part)
		piece := min(length-have, max(cap(part)-have, firstPiece, have))
		if have+piece > cap(part) {
			if grow != nil {
				if err := grow(have + piece - cap(part)); err != nil {
					return part, err
				}
			}
			grown := make([]byte, have, have+piece)
			copy(grown, part)
			part = grown
		}
		n, err := io.ReadFull(r, part[have:have+piece])
		part = part[:have+n]
		if err != nil {
			return part, unexpected(err)
		}
	}
	return part, nil
}

// firstPiece is the number of bytes that ReadRest allocates before any of them has arrived.
const firstPiece = 16 << 10

// unexpected returns the error of a stream that ends within a frame.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
