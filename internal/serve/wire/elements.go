package wire

import (
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
		return n, fmt.Errorf("%w: it has %d requests, flows, targets and lapses, of at most %d", ErrFrame, n, MaxElements)
	}
	if n += ids; n <= fewElements {
		n = 0
	}
	return n, nil
}

// varints returns how many varints text has at most: the last byte of each has its high bit clear.
func varints(text []byte) int {
	n := 0
	for _, b := range text {
		n += int(^b >> 7)
	}
	return n
}

// eachField calls do with each length-delimited field of a message, up to the first invalid one.
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
