package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lockkeeper/lockkeeper"
)

// The functions append* write one field of a message in the format of protocol buffers. As in
// proto3, a field with its zero value is absent. Messages write their fields in the order of the
// numbers, as the generated code does, so both write the same bytes.

func appendTag(b []byte, field protowire.Number, kind protowire.Type) []byte {
	if field < 16 {
		return append(b, byte(field)<<3|byte(kind))
	}
	return binary.AppendUvarint(b, uint64(field)<<3|uint64(kind))
}

func appendUint(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(appendTag(b, field, protowire.VarintType), n)
}

// appendInt writes an int64.
func appendInt(b []byte, field protowire.Number, n int) []byte {
	return appendUint(b, field, uint64(int64(n)))
}

// appendSigned writes a sint64.
func appendSigned(b []byte, field protowire.Number, n int64) []byte {
	return appendUint(b, field, protowire.EncodeZigZag(n))
}

func appendDuration(b []byte, field protowire.Number, d time.Duration) []byte {
	return appendSigned(b, field, newDuration(d))
}

func appendBool(b []byte, field protowire.Number, is bool) []byte {
	if !is {
		return b
	}
	return append(appendTag(b, field, protowire.VarintType), 1)
}

func appendText[T ~string | ~[]byte](b []byte, field protowire.Number, text T) []byte {
	if len(text) == 0 {
		return b
	}
	b = binary.AppendUvarint(appendTag(b, field, protowire.BytesType), uint64(len(text)))
	return append(b, text...)
}

// appendLabel writes the three parts of a label at consecutive numbers.
func appendLabel(b []byte, first protowire.Number, l *lockkeeper.Label) []byte {
	b = appendText(b, first, l.As)
	b = appendText(b, first+1, l.Note)
	return appendText(b, first+2, l.Link)
}

// open begins a nested message, or a packed list, with one byte of room for its length. The caller
// appends the content and calls closeAt with the returned position.
func open(b []byte, field protowire.Number) ([]byte, int) {
	b = append(appendTag(b, field, protowire.BytesType), 0)
	return b, len(b)
}

// closeAt writes the length of the content from at on. It moves content of 128 bytes or more, whose
// length needs more bytes.
func closeAt(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(size))
	b = append(b, length[:n-1]...) // room
	copy(b[at-1+n:], b[at:at+size])
	copy(b[at-1:], length[:n])
	return b
}

// A fields reads the fields of an encoded message one after the other:
//
//	for f := (fields{rest: message}); f.next(); {
//		switch f.field {
//		case 1:
//			id = f.uint()
//	…
//	return f.err
//
// A field that is not asked for is skipped. The content of a message is refused where the generated
// code refuses it; beyond that, varints and field numbers that overflow are. Strings may have any
// bytes: the checks of package lockkeeper refuse those that are no UTF-8.
type fields struct {
	field protowire.Number
	err   error // ErrFrame: why the message is invalid; then next returns false

	kind   protowire.Type
	number uint64 // of a varint
	bytes  []byte // of a length-delimited field; part of the message
	rest   []byte // of the message, behind the field
}

func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	var tag uint64
	if tag = uint64(f.rest[0]); tag < 0x80 {
		f.rest = f.rest[1:]
	} else if !f.varint(&tag) {
		return false
	}
	f.kind = protowire.Type(tag & 7)
	if tag>>3 == 0 || tag>>3 > math.MaxInt32 {
		return f.fail("a field number is out of range")
	}
	f.field = protowire.Number(tag >> 3)
	switch f.kind {
	case protowire.VarintType:
		return f.varint(&f.number)
	case protowire.BytesType:
		var size uint64
		if !f.varint(&size) {
			return false
		}
		if size > uint64(len(f.rest)) {
			return f.fail("a field is longer than its message")
		}
		f.bytes, f.rest = f.rest[:size], f.rest[size:]
		return true
	default:
		n := protowire.ConsumeFieldValue(f.field, f.kind, f.rest)
		if n < 0 {
			return f.fail(protowire.ParseError(n).Error())
		}
		f.rest = f.rest[n:]
		return true
	}
}

// varint reads a varint from rest.
func (f *fields) varint(to *uint64) bool {
	if len(f.rest) > 0 && f.rest[0] < 0x80 {
		*to, f.rest = uint64(f.rest[0]), f.rest[1:]
		return true
	}
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		return f.fail("a varint is cut short or longer than 64 bits")
	}
	*to, f.rest = v, f.rest[n:]
	return true
}

// fail makes the message invalid, and returns false.
func (f *fields) fail(why string) bool {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrFrame, why)
	}
	return false
}

// is reports whether the field has the kind that the schema gives it. Otherwise the message is invalid.
func (f *fields) is(kind protowire.Type) bool {
	return f.kind == kind || f.fail("a field has the encoding of another type")
}

func (f *fields) uint() uint64 {
	if !f.is(protowire.VarintType) {
		return 0
	}
	return f.number
}

func (f *fields) bool() bool { return f.uint() != 0 }

// int reads an int64.
func (f *fields) int() int { return readInt(int64(f.uint())) }

// signed reads a sint64.
func (f *fields) signed() int64 { return protowire.DecodeZigZag(f.uint()) }

func (f *fields) duration() time.Duration { return readDuration(f.signed()) }

// enum reads the number of an enumeration.
func enum[E ~uint8](f *fields) E { return narrow[E](int32(f.uint())) }

// message reads the bytes of a nested message.
func (f *fields) message() []byte {
	if !f.is(protowire.BytesType) {
		return nil
	}
	return f.bytes
}

// text returns a copy of a string.
func (f *fields) text() string { return string(f.message()) }

// uints appends the numbers of a repeated field, packed or not.
func (f *fields) uints(to []uint64) []uint64 {
	if f.kind == protowire.VarintType {
		return append(to, f.number)
	}
	packed := fields{rest: f.message()}
	if n := varints(packed.rest); cap(to)-len(to) < n {
		to = append(make([]uint64, 0, len(to)+n), to...)
	}
	for len(packed.rest) > 0 {
		var n uint64
		if !packed.varint(&n) {
			f.err = packed.err
			return to
		}
		to = append(to, n)
	}
	return to
}

// inner passes the error of a nested message on.
func (f *fields) inner(err error) {
	if err != nil {
		f.err = err
	}
}

// label reads the part of a label whose first part is at the number first.
func (f *fields) label(to *lockkeeper.Label, first protowire.Number) {
	switch f.field - first {
	case 0:
		to.As = f.text()
	case 1:
		to.Note = f.text()
	case 2:
		to.Link = f.text()
	}
}
