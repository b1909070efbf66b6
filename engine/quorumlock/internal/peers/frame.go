package peers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// The kinds of frames, by their first byte. A frame without bytes is a keepalive.
const (
	frameMessage = 1 // to, message
	frameLarge   = 2 // to, size: a large message begins
	framePiece   = 3 // bytes: its next piece
)

// Bounds in bytes.
const (
	maxFrame  = 2 << 20
	maxHead   = 1 + 2*binary.MaxVarintLen64 // of a frame before the message
	maxWrite  = 256 << 10                   // of messages, after which a write has enough of them
	pieceSize = 32 << 10
)

// A frame is what a wire.Outbox takes. The zero frame is a keepalive.
type frame struct{ head, body []byte }

func newFrame(kind byte, body []byte, numbers ...uint64) *frame {
	head := append(make([]byte, 0, maxHead), kind)
	for _, n := range numbers {
		head = binary.AppendUvarint(head, n)
	}
	return &frame{head, body}
}

// SizeVT returns the number of bytes after the length.
func (f *frame) SizeVT() int { return len(f.head) + len(f.body) }

// MarshalToSizedBufferVT writes the bytes, for which b has room.
func (f *frame) MarshalToSizedBufferVT(b []byte) (int, error) {
	return copy(b[copy(b, f.head):], f.body), nil
}

var errFrame = errors.New("it breaks the protocol")

// An inbox makes messages of the frames of one peer.
type inbox struct {
	transport *Transport
	peer      *peer
	arrived   []replica.Message // that were not passed on yet

	to       uint64 // of the large message
	missing  int    // its bytes that have not arrived; 0: there is none
	large    []byte
	reserved int // bytes taken from the quota; 0 for a large message that is dropped
}

// add handles a frame, which it keeps. An error matches errFrame, or says that the message is damaged:
// then the connection must end.
func (in *inbox) add(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	kind, b := b[0], b[1:]
	switch kind {
	case frameMessage:
		to, b, err := cutNumber(b)
		if err != nil {
			return err
		}
		return in.deliver(to, b)
	case frameLarge:
		return in.begin(b)
	case framePiece:
		return in.continueWith(b)
	}
	return fmt.Errorf("%w: frames of kind %d are unknown", errFrame, kind)
}

// begin begins a large message. If there is no room for it now, its pieces are dropped.
func (in *inbox) begin(b []byte) error {
	to, b, err := cutNumber(b)
	if err != nil {
		return err
	}
	size, b, err := cutNumber(b)
	switch most := in.transport.bounds.large; {
	case err != nil:
		return err
	case len(b) > 0:
		return fmt.Errorf("%w: %d bytes follow the size of a large message", errFrame, len(b))
	case in.missing > 0:
		return fmt.Errorf("%w: a large message begins within another one", errFrame)
	case size == 0 || size > uint64(most):
		return fmt.Errorf("%w: a large message of %d bytes, at most %d are allowed", errFrame, size, most)
	}
	in.to, in.missing = to, int(size)
	if in.transport.largeReceived.take(in.missing) {
		in.reserved = in.missing
		in.large = make([]byte, 0, in.missing) // untouched memory costs nothing until the bytes arrive
	}
	return nil
}

func (in *inbox) continueWith(piece []byte) error {
	if len(piece) == 0 || len(piece) > in.missing {
		return fmt.Errorf("%w: a piece of %d bytes, while %d are missing", errFrame, len(piece), in.missing)
	}
	in.missing -= len(piece)
	if in.reserved == 0 {
		return nil
	}
	in.large = append(in.large, piece...)
	if in.missing > 0 {
		return nil
	}
	defer in.end()
	return in.deliver(in.to, in.large)
}

// end gives up a large message.
func (in *inbox) end() {
	in.transport.largeReceived.release(in.reserved)
	in.large, in.missing, in.reserved = nil, 0, 0
}

// deliver reads a message. It is from the peer of the connection, whatever its bytes say.
func (in *inbox) deliver(to uint64, b []byte) error {
	p, s := in.peer, &in.transport.settings
	if to != s.ID {
		p.misaddressed.Add(1)
		return nil
	}
	m := replica.Message{From: p.id, To: to}
	if err := m.UnmarshalBinary(b); err != nil {
		return fmt.Errorf("a message that can't be read: %w", err)
	}
	p.received.Add(1)
	p.receivedBytes.Add(uint64(len(b)))
	in.arrived = append(in.arrived, m)
	return nil
}

// pass passes on what has arrived.
func (in *inbox) pass() {
	if len(in.arrived) > 0 {
		in.transport.settings.Receive(in.arrived)
	}
	clear(in.arrived)
	in.arrived = in.arrived[:0]
}

func cutNumber(b []byte) (n uint64, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, fmt.Errorf("%w: a frame ends too early", errFrame)
	}
	return n, b[size:], nil
}
