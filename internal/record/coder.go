package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A coder appends values to b, or reads them from the beginning of b. One method per struct serves
// both directions, so they can't differ. A writing coder only reads the struct, so other goroutines
// may read it at the same time.
type coder struct {
	b       []byte // the bytes written so far, or not yet read
	reading bool
	err     error // the first error; the coder reads nothing after it

	previous *previous // for commands: what the one before in the batch has left
}

var (
	errShort    = errors.New("it ends too early")
	errOverlong = errors.New("a number is longer than it need be, or too large")
)

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err, c.b = err, nil
	}
}

// number codes an unsigned number.
func (c *coder) number(n *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *n)
		return
	}
	*n = 0
	read, size := binary.Uvarint(c.b)
	switch {
	case size == 0:
		c.fail(errShort)
	case size < 0 || size > 1 && c.b[size-1] == 0:
		c.fail(errOverlong)
	default:
		*n, c.b = read, c.b[size:]
	}
}

// The zigzag codes of -1 and of lockkeeper.Forever, the largest number. swap exchanges them.
const (
	minusOne uint64 = 1
	largest  uint64 = math.MaxUint64 - 1
)

func swap(code uint64) uint64 {
	switch code {
	case minusOne:
		return largest
	case largest:
		return minusOne
	}
	return code
}

// signed codes a number that may be negative.
func (c *coder) signed(n *int64) {
	code := swap(uint64(*n)<<1 ^ uint64(*n>>63))
	c.number(&code)
	if c.reading {
		code = swap(code)
		*n = int64(code>>1) ^ -int64(code&1)
	}
}

func (c *coder) string(s *string) {
	n := uint64(len(*s))
	c.number(&n)
	switch {
	case !c.reading:
		c.b = append(c.b, *s...)
	case n > uint64(len(c.b)):
		c.fail(errShort)
	default:
		*s, c.b = string(c.b[:n]), c.b[n:]
	}
}

// tag codes the tag of a field, and reports whether the field is present. When writing, the caller
// says so in present.
func (c *coder) tag(tag byte, present bool) bool {
	switch {
	case !c.reading && present:
		c.b = append(c.b, tag)
		return true
	case !c.reading || len(c.b) == 0 || c.b[0] != tag:
		return false
	}
	c.b = c.b[1:]
	return true
}

// end codes the end of a struct.
func (c *coder) end() {
	switch {
	case !c.reading:
		c.b = append(c.b, 0)
	case len(c.b) == 0:
		c.fail(errShort)
	case c.b[0] != 0:
		c.fail(fmt.Errorf("field %d is unknown, or out of its order", c.b[0]))
	default:
		c.b = c.b[1:]
	}
}

// notZero fails if the coder read a field with a zero value.
func (c *coder) notZero(tag byte, zero bool) {
	if c.reading && zero {
		c.fail(fmt.Errorf("field %d is written though it is zero", tag))
	}
}

func (c *coder) uint(tag byte, n *uint64) {
	if c.tag(tag, *n != 0) {
		c.number(n)
		c.notZero(tag, *n == 0)
	}
}

func (c *coder) duration(tag byte, d *time.Duration) {
	if c.tag(tag, *d != 0) {
		c.signed((*int64)(d))
		c.notZero(tag, *d == 0)
	}
}

func (c *coder) int(tag byte, n *int) {
	if c.tag(tag, *n != 0) {
		wide := int64(*n)
		c.signed(&wide)
		c.notZero(tag, wide == 0)
		if int64(int(wide)) != wide {
			c.fail(errOverlong)
		}
		if c.reading {
			*n = int(wide)
		}
	}
}

func (c *coder) bool(tag byte, b *bool) {
	if there := c.tag(tag, *b); c.reading {
		*b = there
	}
}

// text codes a string of any type.
func text[T ~string](c *coder, tag byte, s *T) {
	if c.tag(tag, *s != "") {
		plain := string(*s)
		c.string(&plain)
		c.notZero(tag, plain == "")
		if c.reading {
			*s = T(plain)
		}
	}
}

// enum codes a value of an enumeration whose highest value is last.
func enum[T ~uint8](c *coder, tag byte, e *T, last T) {
	if !c.tag(tag, *e != 0) {
		return
	}
	n := uint64(*e)
	c.number(&n)
	if !c.reading {
		return
	}
	c.notZero(tag, n == 0)
	if n > uint64(last) {
		c.fail(fmt.Errorf("field %d has the value %d, the highest is %d", tag, n, last))
		return
	}
	*e = T(n)
}

// elements codes the length of a list, and returns the list. The caller codes its elements. An
// element takes at least one byte, so a length beyond the remaining bytes fails before the
// allocation.
func elements[T any](c *coder, tag byte, all *[]T) []T {
	if !c.tag(tag, len(*all) > 0) {
		return nil
	}
	n := uint64(len(*all))
	c.number(&n)
	c.notZero(tag, n == 0)
	if c.reading && n > uint64(len(c.b)) {
		c.fail(errShort)
	}
	if c.err != nil {
		return nil
	}
	if c.reading {
		*all = make([]T, n)
	}
	return *all
}

// pointed codes whether *p is not nil, and reports it. The caller then codes the fields of **p.
func pointed[T any](c *coder, tag byte, p **T) bool {
	if !c.tag(tag, *p != nil) {
		return false
	}
	if c.reading {
		*p = new(T)
	}
	return true
}

func (c *coder) ref(tag byte, r *lockkeeper.Ref) {
	if c.tag(tag, *r != lockkeeper.Ref{}) {
		text(c, 1, &r.Session)
		c.uint(2, &r.ID)
		c.end()
		c.notZero(tag, *r == lockkeeper.Ref{})
	}
}

// label codes the three texts of a label as fields of the enclosing struct, with the tags from tag
// on.
func (c *coder) label(tag byte, l *lockkeeper.Label) {
	text(c, tag, &l.As)
	text(c, tag+1, &l.Note)
	text(c, tag+2, &l.Link)
}
