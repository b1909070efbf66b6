package remote

import (
	"bufio"

	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// frames reads the frames of a server. After a read that timed out, it goes on where that stopped,
// so no byte is lost. It is not safe for concurrent use.
type frames struct {
	in      *bufio.Reader
	begun   bool // the length of a frame was read, but not its whole message
	length  int
	message []byte // the part that was read; its room serves the next frame, too
}

// next returns the message of the next frame. It is valid until the next call.
func (f *frames) next() ([]byte, error) {
	if !f.begun {
		length, err := wire.ReadLength(f.in, wire.MaxFrame)
		if err != nil {
			return nil, err
		}
		f.begun, f.length, f.message = true, length, f.message[:0]
	}
	var err error
	if f.message, err = wire.ReadRest(f.in, f.length, f.message, nil); err != nil {
		return nil, err
	}
	f.begun = false
	return f.message, nil
}

// pending reports whether a part of the next frame has been read.
func (f *frames) pending() bool { return f.begun || f.in.Buffered() > 0 }
