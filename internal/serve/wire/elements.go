package wire

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxElements bounds the requests, flows, targets and lapses of one ClientFrame. An encoded element
// can have two bytes; decoded it takes a hundred times as many.
const MaxElements = 16 << 10

// The field numbers that lead to elements.
const (
	fieldRequests = 2 // of ClientFrame
	fieldClaim    = 8 // of Request
	fieldTargets  = 2 // of Want
	fieldAttach   = 6 // of Request
	fieldLapsed   = 9 // of Session

	fieldHandle = 26 // of Status
)

// fewElements: CheckElements does not count the elements of a message of up to 2*fewElements bytes.
const fewElements = 128

// CheckElements counts the elements of an encoded ClientFrame before anything is allocated for
// them, and refuses a message with more than MaxElements. It counts ids of lapses too, but does not
// bound them: a session may have any number of claims. It returns 0 for up to fewElements
// elements. It makes no other check of the message.
func CheckElements(message []byte) (n int, err error) {
	if len(message) <= 2*fewElements {
		return 0, nil
	}
	ids := 0
	for len(message) > 0 {
		field, element, rest := skim(message)
		if message = rest; field == 0 {
			continue
		}
		if n++; field == fieldRequests {
			within, named := requestElements(element)
			n, ids = n+within, ids+named
		}
	}
	if n > MaxElements {
		return n, fmt.Errorf("%w: it has %d requests, flows, targets and lapses, of at most %d", ErrFrame, n, MaxElements)
	}
	if n += ids; n <= fewElements {
		n = 0
	}
	return n, nil
}

// requestElements counts the targets or lapses of a request, and the ids of the lapses.
func requestElements(request []byte) (n, ids int) {
	for len(request) > 0 {
		method, part, rest := skim(request)
		if request = rest; method != fieldClaim && method != fieldAttach {
			continue
		}
		for len(part) > 0 {
			field, listed, rest := skim(part)
			part = rest
			switch {
			case method == fieldClaim && field == fieldTargets:
				n++
			case method == fieldAttach && field == fieldLapsed:
				n++
				ids += varints(listed) // at least as many as ids, packed or not
			}
		}
	}
	return n, ids
}

// skim returns the number and the content of the next field of a message if that is length-delimited,
// else 0; and the rest of the message, which is empty behind an invalid field. It goes on behind some
// fields that fields refuses.
func skim(message []byte) (field uint64, content, rest []byte) {
	tag, at := uint64(message[0]), 1
	if tag >= 0x80 {
		if tag, at = binary.Uvarint(message); at <= 0 {
			return 0, nil, nil
		}
	}
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		for at < len(message) && message[at] >= 0x80 {
			at++
		}
		return 0, nil, message[min(at+1, len(message)):]
	case protowire.BytesType:
		size, n := uint64(0), 0
		if at < len(message) && message[at] < 0x80 {
			size, n = uint64(message[at]), 1
		} else if size, n = binary.Uvarint(message[at:]); n <= 0 {
			return 0, nil, nil
		}
		if at += n; size > uint64(len(message)-at) {
			return 0, nil, nil
		}
		end := at + int(size)
		return tag >> 3, message[at:end], message[end:]
	default:
		n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), message[at:])
		if n < 0 {
			return 0, nil, nil
		}
		return 0, nil, message[at+n:]
	}
}

// varints returns how many varints text has at most: the last byte of each has its high bit clear.
func varints(text []byte) int {
	n := 0
	for _, b := range text {
		n += int(^b >> 7)
	}
	return n
}

// A Field is the number of a field of a frame.
type Field int32

// FieldHandshake is Hello in a ClientFrame and Welcome in a ServerFrame: only the first frame has it.
const FieldHandshake Field = 1

// The fields of a ClientFrame.
const (
	FieldRequests Field = fieldRequests
	FieldFlows    Field = 3
)

// The fields of a ServerFrame.
const (
	FieldReplies  Field = 2
	FieldChanged  Field = 3
	FieldMissed   Field = 4
	FieldDraining Field = 5
	FieldRefused  Field = 6
	FieldCluster  Field = 7
)

// Elements are those of a frame, in the order in which they were sent:
//
//	for e := wire.NewElements(message); e.Next(); {
//		switch e.Field() {
//		case wire.FieldReplies:
//			answer, err := wire.ParseAnswer(e.Message())
//	…
//	err := e.Err()
//
// Nothing is allocated for them. What is not asked for is skipped.
type Elements struct{ f fields }

// NewElements returns the elements of a frame's message.
func NewElements(message []byte) Elements { return Elements{fields{rest: message}} }

// Next goes on to the next element. It reports false at the end, and before an invalid element.
func (e *Elements) Next() bool { return e.f.next() }

// Err returns an ErrFrame if the frame is invalid.
func (e *Elements) Err() error { return e.f.err }

// Field is that of the element.
func (e *Elements) Field() Field { return Field(e.f.field) }

// Message returns the bytes of an element that is a message. They are part of the frame.
func (e *Elements) Message() []byte { return e.f.message() }

// Flag returns an element that is a bool.
func (e *Elements) Flag() bool { return e.f.bool() }

// Text returns an element that is a string.
func (e *Elements) Text() string { return e.f.text() }

// ParseFlow reads a flow: the call of a list, and its further credit or its stop.
func ParseFlow(message []byte) (call uint64, credit uint32, stop bool, err error) {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			call = f.uint()
		case 2:
			credit = uint32(f.uint())
		case 3:
			stop = f.bool()
		}
	}
	return call, credit, stop, f.err
}

// invalid returns the error of generated code as an ErrFrame.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFrame, err)
}

// ReadFrame reads a whole frame, such as the first one, by generated code.
func ReadFrame(message []byte, into interface{ UnmarshalVT([]byte) error }) error {
	return invalid(into.UnmarshalVT(message))
}
