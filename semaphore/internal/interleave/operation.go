package interleave

import "fmt"

// operation is an operation of a goroutine on a location.
type operation uint8

const (
	opStart operation = iota + 1
	opLoad
	opStore
	opSwap
	opAdd
	opCompareAndSwap
	opLock
	opUnlock
	opGosched
)

// describe returns the operation as text. a is the old, expected or added value, b the new or read
// value; both are numbers or names of pointees.
func (op operation) describe(result, a, b uint64) string {
	switch op {
	case opLoad:
		return fmt.Sprintf("Load: %s", number(b))
	case opStore:
		return fmt.Sprintf("Store(%s)", number(b))
	case opSwap:
		return fmt.Sprintf("Swap(%s): %s", number(b), number(a))
	case opAdd:
		return fmt.Sprintf("Add(%s): %s", number(a), number(b))
	case opCompareAndSwap:
		return fmt.Sprintf("CompareAndSwap(%s, %s): %t", number(a), number(b), result == 1)
	case opLock:
		return "Lock"
	case opUnlock:
		return "Unlock"
	case opGosched:
		return "Gosched"
	}
	return "start"
}

// isName marks a number as the name of a pointee.
const isName = 1 << 62

// number returns a value as text: a number, or a name such as *B2 for the second pointee that the
// second goroutine named.
func number(v uint64) string {
	n := name(v)
	switch {
	case v&(3<<62) != isName:
		return fmt.Sprint(int64(v))
	case n == 0:
		return "nil"
	case n>>16 == 0:
		return fmt.Sprintf("*%d", n)
	case n>>16 <= 16:
		return fmt.Sprintf("*%c%d", 'A'+n>>16-1, n&0xffff)
	}
	return fmt.Sprintf("*%x", n)
}
