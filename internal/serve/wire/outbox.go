package wire

import (
	"encoding/binary"
	"io"
)

// part is an element of a frame, or a whole one.
type part interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// The tags of the repeated fields of frames.
const (
	tagRequests = 2<<3 | 2 // of ClientFrame
	tagFlows    = 3<<3 | 2
	tagReplies  = 2<<3 | 2 // of ServerFrame
	tagChanged  = 3<<3 | 2
)

// fullFrame is the size at which an outbox closes a frame and begins the next one.
const fullFrame = 256 << 10

// An Outbox encodes frames to send. Elements become part of one frame until that is full. The zero
// Outbox is empty. It is not safe for concurrent use.
type Outbox struct {
	bytes []byte // frames, the last of them open
	start int    // where the message of the open frame begins; 0: none is open
	has   int    // elements in it
}

// Len returns the number of bytes in the outbox.
func (o *Outbox) Len() int { return len(o.bytes) }

// PutRequest adds a request to a ClientFrame.
func (o *Outbox) PutRequest(m *Request) { o.put(tagRequests, m, 1+len(m.GetClaim().GetTargets())) }

// PutFlow adds a flow to a ClientFrame.
func (o *Outbox) PutFlow(m *Flow) { o.put(tagFlows, m, 1) }

// PutReply adds a reply to a ServerFrame.
func (o *Outbox) PutReply(m *Reply) { o.put(tagReplies, m, 1) }

// PutChanged adds a hint to a ServerFrame.
func (o *Outbox) PutChanged(m *Status) { o.put(tagChanged, m, 1) }

// put appends an element of a repeated field to the open frame. A message with a repeated field is
// the concatenation of the field's elements.
func (o *Outbox) put(tag byte, m part, elements int) {
	size := m.SizeVT()
	if o.start > 0 && (len(o.bytes)-o.start+size > fullFrame || o.has+elements > MaxElements) {
		o.close()
	}
	if o.start == 0 {
		o.open()
	}
	o.has += elements
	o.bytes = append(o.bytes, tag)
	o.bytes = binary.AppendUvarint(o.bytes, uint64(size))
	o.bytes = marshal(o.bytes, m, size)
}

// begin begins an element of a repeated field, with one byte of room for its length. The caller appends
// its content, and passes the result and the position on to finish.
func (o *Outbox) begin(tag byte, elements int) (b []byte, at int) {
	if o.start > 0 && (len(o.bytes)-o.start >= fullFrame || o.has+elements > MaxElements) {
		o.close()
	}
	if o.start == 0 {
		o.open()
	}
	o.has += elements
	b = append(o.bytes, tag, 0)
	return b, len(b)
}

// finish ends an element. If the frame gets too large by it, the element begins a frame of its own. It
// reports false, and drops the element, if even that is larger than a peer takes.
func (o *Outbox) finish(b []byte, at int) bool {
	before := len(o.bytes)
	b = closeAt(b, at)
	switch {
	case len(b)-before > MaxFrame:
		if before == o.start { // the frame is empty
			o.bytes, o.start, o.has = o.bytes[:before-headRoom], 0, 0
		}
		return false
	case len(b)-o.start > fullFrame && before > o.start:
		b = append(b, make([]byte, headRoom)...)
		copy(b[before+headRoom:], b[before:])
		has := o.has
		o.bytes = b[:before]
		o.close()
		o.start, o.has = before+headRoom, has
	}
	o.bytes = b
	return true
}

// PutFrame adds a whole frame by itself.
func (o *Outbox) PutFrame(m part) {
	o.close()
	size := m.SizeVT()
	o.bytes = binary.AppendUvarint(o.bytes, uint64(size))
	o.bytes = marshal(o.bytes, m, size)
}

func marshal(to []byte, m part, size int) []byte {
	have := len(to)
	if cap(to) < have+size {
		grown := make([]byte, have, max(have+size, 2*cap(to), 4<<10))
		copy(grown, to)
		to = grown
	}
	to = to[:have+size]
	// It can fail only for want of room, and the room has SizeVT bytes.
	_, _ = m.MarshalToSizedBufferVT(to[have:])
	return to
}

// open begins a frame, with room for its length.
func (o *Outbox) open() {
	if cap(o.bytes) == 0 {
		o.bytes = make([]byte, 0, 4<<10)
	}
	o.bytes = append(o.bytes, make([]byte, headRoom)...)
	o.start = len(o.bytes)
}

// close ends the open frame and writes its length, as a varint that fills headRoom bytes: a varint
// may end in superfluous groups of zeros.
func (o *Outbox) close() {
	if o.start == 0 {
		return
	}
	size := uint64(len(o.bytes) - o.start)
	head := o.bytes[o.start-headRoom : o.start]
	for i := range head {
		head[i] = byte(size) | 0x80
		size >>= 7
	}
	head[headRoom-1] &^= 0x80
	o.start, o.has = 0, 0
}

// Take returns the content as whole frames, and empties the outbox, which uses room from then on.
func (o *Outbox) Take(room []byte) []byte {
	o.close()
	frames := o.bytes
	o.bytes = room[:0]
	return frames
}

// WriteFrame writes one frame.
func WriteFrame(w io.Writer, m part) error {
	var o Outbox
	o.PutFrame(m)
	_, err := w.Write(o.bytes)
	return err
}
