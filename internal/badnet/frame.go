package badnet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// mostFrame bounds a frame. What claims to be longer is no frame, and is passed
// on as it comes.
const mostFrame = 16 << 20

var errNoFrames = errors.New("this is not made of frames")

// readFrame reads one frame with its length before it. With an error it returns
// what there is of it.
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
	if n <= 0 || size > mostFrame {
		return head, errNoFrames
	}
	frame := make([]byte, len(head)+int(size))
	copy(frame, head)
	got, err := io.ReadFull(in, frame[len(head):])
	return frame[:len(head)+got], err
}
