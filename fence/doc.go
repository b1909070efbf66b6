// Package fence refuses the writes of holders that lost their lock without noticing: a resource
// remembers the highest fence that it has seen, and refuses lower ones.
//
// A process can stop between the moment at which it checks its lock and the moment at which it
// writes. When it continues, the next holder may be at work. No lock service can prevent that write;
// the written resource can, because the fence of each grant is higher than those before it:
//
//	holder 1, fence 5   ──lock──┤ stopped ├──────────────write 5──▶ refused: 6 has been here
//	holder 2, fence 6            ──lock──write 6──▶ accepted
//
// There are two ways to check a fence:
//
//   - In SQL, for data in a database: [Dialect.Check] is one step of the transaction that writes.
//     Nothing else is needed, and nothing is left open: the check and the writes are one commit.
//   - By HTTP, for a resource behind a server: [Handler] answers 412 to a stale fence in the header
//     [HeaderName]. The highest fences are in memory ([Memory]) or in a database ([Database]).
//
// # What a fence can promise, and what not
//
// The resource refuses a fence once it has seen a higher one. It does not know of a grant whose
// holder has not come yet: until then it accepts the former holder. So a holder should check its
// fence before it reads what it is going to change.
//
// Fences are for exclusive locks. Among holders of a shared lock or of permits, the holder with the
// latest fence would lock out the others.
//
// Fences of a resource must come from one lock path of one engine, and must rise as long as the
// resource exists: the Guarantees of the engine say so in Fences (FencesForever) and FenceScope. If
// the locks of the engine are lost or set back, raise its fences, or delete the row of the resource.
//
// A fence is no secret. A client that may write may also send a number that is too high, and so lock
// out all holders. Authenticate clients before the check.
//
// The idea is that of Kleppmann, "How to do distributed locking" (2016), and of the sequencers of
// Burrows, "The Chubby lock service for loosely-coupled distributed systems" (OSDI 2006).
package fence

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 255

// ErrStale means that a later holder has used the resource. The caller has lost its lock, and must
// not write. The error is a [*StaleError].
var ErrStale = errors.New("stale fence")

// ErrInvalid means that a resource's name or a fence can't be right. Nothing has changed.
var ErrInvalid = errors.New("invalid fence")

// A StaleError says which fence was refused, and because of which. It is [ErrStale].
type StaleError struct {
	Resource string
	Fence    uint64 // the fence that was refused
	Highest  uint64 // the highest fence that the resource has seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%q refuses fence %d: a later holder, with fence %d, has been here", e.Resource, e.Fence, e.Highest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// validate refuses what no table could keep: names that databases compare in different ways, and
// numbers above a signed integer of 64 bits. Engines number grants from 1.
func validate(resource string, fence uint64) error {
	switch {
	case resource == "":
		return fmt.Errorf("%w: the name of the resource is empty", ErrInvalid)
	case len(resource) > MaxResource:
		return fmt.Errorf("%w: the name of the resource has %d bytes, at most %d are allowed", ErrInvalid, len(resource),
			MaxResource)
	case !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("%w: the name of the resource, %q, must be UTF-8 without NUL", ErrInvalid, resource)
	case fence == 0:
		return fmt.Errorf("%w: 0 is the fence of no grant: fences begin at 1", ErrInvalid)
	case fence > math.MaxInt64:
		return fmt.Errorf("%w: fence %d is above %d", ErrInvalid, fence, int64(math.MaxInt64))
	}
	return nil
}
