package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxElements is the most requests, credits, targets of claims and lapses that one frame may have.
// An element can be as short as two bytes, and takes a hundred times as much once it
// is read.
const MaxElements = 16 << 10

// The numbers of fields on the way to elements.
const (
	fieldRequests = 2 // of ClientFrame
	fieldClaim    = 6 // of Request
	fieldTargets  = 2 // of Claim
	fieldAttach   = 4 // of Request
	fieldLapsed   = 9 // of Attach
)

// fewElements is how many a message of up to twice as many bytes may have, that nobody counts.
const fewElements = 128

// CheckElements counts the elements of an encoded ClientFrame before anything is allocated for them,
// and refuses the message if they are too many. Ids of lapses count, but are never too many: a
// session may have any number of claims. It returns 0 if they are too few to matter. It makes
// no other check of the message.
func CheckElements(message []byte) (n int, err error) {
	if len(message) <= 2*fewElements {
		return 0, nil
	}
	ids := 0
	eachField(message, func(of protowire.Number, element []byte) {
		n++
		if of == fieldRequests {
			eachField(element, func(of protowire.Number, part []byte) {
				if of == fieldClaim || of == fieldAttach {
					eachField(part, func(within protowire.Number, listed []byte) {
						if of == fieldClaim && within == fieldTargets || of == fieldAttach && within == fieldLapsed {
							n++
						}
						if of == fieldAttach && within == fieldLapsed {
							ids += varints(listed) // at least as many as ids, packed or not
						}
					})
				}
			})
		}
	})
	if n > MaxElements {
		return n, fmt.Errorf("%w: it has %d requests, credits, targets and lapses, of at most %d", ErrFrame, n, MaxElements)
	}
	if n += ids; n <= fewElements {
		n = 0
	}
	return n, nil
}

// varints is how many numbers text can hold: the last byte of each has its high bit clear.
func varints(text []byte) int {
	n := 0
	for _, b := range text {
		n += int(^b >> 7)
	}
	return n
}

// eachField calls do with the fields of a message that have a length, until one is
// not as it should be.
func eachField(message []byte, do func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			do(number, value)
		}
		message = message[n:]
	}
}
