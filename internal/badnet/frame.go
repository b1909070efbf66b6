package badnet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// maxFrame bounds a frame. A longer one is passed on as a plain stream.
const maxFrame = 16 << 20

var errNoFrames = errors.New("the stream has no frames")

// readFrame returns one frame, with its length. With an error it returns the part that it has read.
func readFrame(in *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		b, err := in.ReadByte()
		if err != nil {
			return head, err
		}
		head = append(head, b)
		if b < 0x80 {
			break
		}
		if len(head) == binary.MaxVarintLen64 {
			return head, errNoFrames
		}
	}
	size, n := binary.Uvarint(head)
	if n <= 0 || size > maxFrame {
		return head, errNoFrames
	}
	frame := make([]byte, len(head)+int(size))
	copy(frame, head)
	got, err := io.ReadFull(in, frame[len(head):])
	return frame[:len(head)+got], err
}
