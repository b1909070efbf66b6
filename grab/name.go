package grab

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// DefaultTTL is for how long a place or a hold lives without a repeat if the
// request says nothing else.
const DefaultTTL = time.Minute

// A Name says whose place or hold it is. The same As at another set of paths is
// another owner; the order of paths does not matter.
type Name struct {
	As    string            // who: 1 to lockkeeper.MaxAsBytes bytes of printable text
	Paths []lockkeeper.Path // 1 to lockkeeper.MaxTargets, none twice
}

// Check finds everything that is wrong with n, in one error that is an
// ErrInvalid; nil if there is nothing.
func (n Name) Check() error {
	want := lockkeeper.Want{ID: solo.ClaimID, Label: lockkeeper.Label{As: n.As}}
	for _, p := range n.Paths {
		want.Targets = append(want.Targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
	}
	return together(n.named(), want.Check())
}

// named refuses a caller without a name.
func (n Name) named() error {
	if strings.TrimSpace(n.As) == "" {
		return lockkeeper.Invalid("no name: say as whom, with something that no other job has")
	}
	return nil
}

// Session is the id of n's session. It is a hash, since names and paths may be
// longer than ids.
func (n Name) Session() string {
	h := sha256.New()
	word := func(s string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(s)))
		h.Write(size[:])
		h.Write([]byte(s))
	}
	word(n.As)
	for _, p := range slices.Sorted(slices.Values(n.Paths)) {
		word(string(p))
	}
	return sessions + strings.ToLower(base32.HexEncoding.EncodeToString(h.Sum(nil)[:20]))
}

// sessions is how the ids of all sessions of this package begin.
const sessions = "grab-"

// Made reports whether a claim looks like one that was grabbed for a name. It is a
// hint for messages: anybody can call a session so.
func Made(ref lockkeeper.Ref) bool { return strings.HasPrefix(ref.Session, sessions) }

// Ref is the claim of n, as List and lk why name it.
func (n Name) Ref() lockkeeper.Ref { return lockkeeper.Ref{Session: n.Session(), ID: solo.ClaimID} }

// what is the path that errors about n name.
func (n Name) what() lockkeeper.Path {
	if len(n.Paths) == 0 {
		return ""
	}
	return n.Paths[0]
}

// Terms say for how long something is kept without a repeat.
type Terms struct {
	TTL time.Duration // of the place, and of the hold; 0: DefaultTTL
	For time.Duration // the hold is kept for so long at least, and others are told so (R8); 0: TTL
}

// check finds what is wrong with t.
func (t Terms) check() error {
	s := lockkeeper.Session{ID: "x", TTL: t.ttl()}
	err := s.Check(false)
	if t.For != 0 && (t.For < lockkeeper.MinTTL || t.For > lockkeeper.MaxTTL) {
		err = together(err, lockkeeper.Invalid("hold for %s is out of range: %s to %s", t.For, lockkeeper.MinTTL,
			lockkeeper.MaxTTL))
	}
	return err
}

// ttl is that of a place: no longer than the hold would last.
func (t Terms) ttl() time.Duration {
	ttl := cmp.Or(t.TTL, DefaultTTL)
	if t.For > 0 {
		ttl = min(ttl, t.For)
	}
	return ttl
}

// Request is what a name grabs.
type Request struct {
	As       string
	Targets  []lockkeeper.Target // in any order
	Priority int
	Note     string // what for
	Link     string // where to look
	Try      bool   // do not wait: if it is not free at once, the answer is Ended and no claim remains
	Terms
}

// Name is whose request it is.
func (r *Request) Name() Name {
	n := Name{As: r.As}
	for _, t := range r.Targets {
		n.Paths = append(n.Paths, t.Path)
	}
	return n
}

// Check finds everything that is wrong with r, in one error that is an
// ErrInvalid; nil if there is nothing.
func (r *Request) Check() error {
	want := r.want()
	return together(r.Name().named(), together(want.Check(), r.Terms.check()))
}

// want is the claim that r describes. Its targets are in the order of their
// paths, so that repeats may name them in any.
func (r *Request) want() lockkeeper.Want {
	targets := slices.Clone(r.Targets)
	slices.SortFunc(targets, func(a, b lockkeeper.Target) int { return cmp.Compare(a.Path, b.Path) })
	wait := lockkeeper.Forever
	if r.Try {
		wait = 0
	}
	return lockkeeper.Want{
		ID: solo.ClaimID, Targets: targets, Priority: r.Priority, Wait: wait, Expected: max(0, r.For),
		Label: lockkeeper.Label{As: r.As, Note: r.Note, Link: r.Link},
	}
}

// together makes one ErrInvalid of two; either may be nil.
func together(a, b error) error {
	var x, y *lockkeeper.Error
	if !errors.As(a, &x) {
		return b
	}
	if !errors.As(b, &y) {
		return a
	}
	return lockkeeper.Invalid("%s; %s", x.Detail, y.Detail)
}
