package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// maxExact is the highest whole number up to which Lua counts exactly: its numbers are doubles.
const maxExact = 1 << 53

var errTruncated = errors.New("it ends too early")

// A packer writes the part of MessagePack that both Go and Redis's cmsgpack need: whole numbers,
// strings, booleans and arrays. Equal values have equal bytes. err keeps the first failure.
type packer struct {
	b   []byte
	err error
}

func (p *packer) failf(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *packer) array(n int) {
	switch {
	case n < 16:
		p.b = append(p.b, 0x90|byte(n))
	case n <= math.MaxUint16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xdc), uint16(n))
	default:
		p.failf("a list of %d entries: at most %d are possible", n, math.MaxUint16)
	}
}

func (p *packer) bool(v bool) {
	if v {
		p.b = append(p.b, 0xc3)
	} else {
		p.b = append(p.b, 0xc2)
	}
}

// count writes a number that is never negative.
func (p *packer) count(what string, v uint64) {
	switch {
	case v < 128:
		p.b = append(p.b, byte(v))
	case v <= maxExact:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcf), v)
	default:
		p.failf("%s %d is out of range: a Redis server counts exactly up to 2^53", what, v)
	}
}

func (p *packer) number(what string, v int64) {
	switch {
	case v >= 0:
		p.count(what, uint64(v))
	case v >= -maxExact:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xd3), uint64(v))
	default:
		p.failf("%s %d is out of range: a Redis server counts exactly from -2^53", what, v)
	}
}

func (p *packer) text(what, s string, most int) {
	if len(s) > most {
		p.failf("%s has %d bytes: at most %d are allowed", what, len(s), most)
		return
	}
	switch n := len(s); {
	case n < 32:
		p.b = append(p.b, 0xa0|byte(n))
	case n <= math.MaxUint16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xda), uint16(n))
	default:
		p.failf("%s has %d bytes: at most %d are possible", what, n, math.MaxUint16)
		return
	}
	p.b = append(p.b, s...)
}

// An unpacker reads what cmsgpack writes. After the first failure, which err keeps, every method
// returns a zero value, so that a caller checks err once.
type unpacker struct {
	b   []byte
	err error
}

func (u *unpacker) fail(err error) {
	if u.err == nil {
		u.err = err
	}
	u.b = nil
}

func (u *unpacker) failf(format string, args ...any) { u.fail(fmt.Errorf(format, args...)) }

// bytes returns the next n bytes; without them, nil.
func (u *unpacker) bytes(n int) []byte {
	if u.err != nil || n > len(u.b) {
		u.fail(errTruncated)
		return nil
	}
	b := u.b[:n]
	u.b = u.b[n:]
	return b
}

func (u *unpacker) tag() byte {
	if b := u.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// size reads a big-endian length of n bytes.
func (u *unpacker) size(n int) int {
	v := 0
	for _, b := range u.bytes(n) {
		v = v<<8 | int(b)
	}
	return v
}

// array reads the head of an array with at most most entries.
func (u *unpacker) array(what string, most int) int {
	n, tag := 0, u.tag()
	switch {
	case u.err != nil:
		return 0
	case tag&0xf0 == 0x90:
		n = int(tag & 0x0f)
	case tag == 0xdc:
		n = u.size(2)
	case tag == 0xdd:
		n = u.size(4)
	default:
		u.failf("%s is no list", what)
		return 0
	}
	if n > most {
		u.failf("%s has %d entries: at most %d are allowed", what, n, most)
		return 0
	}
	return n
}

// record reads the head of an array that must have n entries.
func (u *unpacker) record(what string, n int) {
	if got := u.array(what, math.MaxInt32); u.err == nil && got != n {
		u.failf("%s has %d entries instead of %d", what, got, n)
	}
}

func (u *unpacker) bool(what string) bool {
	switch tag := u.tag(); {
	case u.err != nil || tag == 0xc2:
		return false
	case tag == 0xc3:
		return true
	}
	u.failf("%s is neither true nor false", what)
	return false
}

func (u *unpacker) number(what string, low, high int64) int64 {
	var v int64
	switch tag := u.tag(); {
	case u.err != nil:
		return 0
	case tag < 0x80:
		v = int64(tag)
	case tag >= 0xe0:
		v = int64(int8(tag))
	case tag >= 0xcc && tag <= 0xcf: // 1, 2, 4 or 8 bytes; above 2^63 the number turns out negative
		v = int64(u.size(1 << (tag - 0xcc)))
		if v < 0 {
			v = math.MaxInt64
		}
	case tag >= 0xd0 && tag <= 0xd3:
		n := 1 << (tag - 0xd0)
		v = int64(u.size(n)) << (64 - 8*n) >> (64 - 8*n)
	default:
		u.failf("%s is no whole number", what)
		return 0
	}
	if u.err == nil && (v < low || v > high) {
		u.failf("%s %d is out of range: %d to %d", what, v, low, high)
		return 0
	}
	return v
}

func (u *unpacker) count(what string) uint64 { return uint64(u.number(what, 0, maxExact)) }

func (u *unpacker) text(what string, most int) string {
	n, tag := 0, u.tag()
	switch {
	case u.err != nil:
		return ""
	case tag&0xe0 == 0xa0:
		n = int(tag & 0x1f)
	case tag >= 0xd9 && tag <= 0xdb:
		n = u.size(1 << (tag - 0xd9))
	default:
		u.failf("%s is no text", what)
		return ""
	}
	if n > most {
		u.failf("%s has %d bytes: at most %d are allowed", what, n, most)
		return ""
	}
	return string(u.bytes(n))
}

// end returns the first failure; bytes behind the last value are one.
func (u *unpacker) end() error {
	if u.err == nil && len(u.b) > 0 {
		u.failf("%d bytes follow its end", len(u.b))
	}
	return u.err
}
