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

// DefaultTTL is the TTL of a reservation if the request does not give one.
const DefaultTTL = time.Minute

// A Name identifies the owner of a reservation. The same As with another set of paths is another
// owner; the order of the paths does not matter.
type Name struct {
	As    string            // 1 to lockkeeper.MaxAsBytes bytes of printable text
	Paths []lockkeeper.Path // 1 to lockkeeper.MaxTargets different paths
}

// Check returns an ErrInvalid with everything that is wrong with n; nil if n is valid.
func (n Name) Check() error {
	want := lockkeeper.Want{ID: solo.ClaimID, Label: lockkeeper.Label{As: n.As}}
	for _, p := range n.Paths {
		want.Targets = append(want.Targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
	}
	return joinInvalid(n.named(), want.Check())
}

// named returns an error if As is empty.
func (n Name) named() error {
	if strings.TrimSpace(n.As) == "" {
		return lockkeeper.Invalid("no name: say as whom, with something that no other job has")
	}
	return nil
}

// Session returns the id of n's session. It is a hash, because names and paths may be longer than
// ids.
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

// sessions is the prefix of all session ids of this package.
const sessions = "grab-"

// IsGrabbed reports whether a claim looks like one of this package. Use it only for messages: any
// program can choose such a session id.
func IsGrabbed(ref lockkeeper.Ref) bool { return strings.HasPrefix(ref.Session, sessions) }

// Ref names the claim of n, for List and lk why.
func (n Name) Ref() lockkeeper.Ref { return lockkeeper.Ref{Session: n.Session(), ID: solo.ClaimID} }

// firstPath returns the path for errors about n.
func (n Name) firstPath() lockkeeper.Path {
	if len(n.Paths) == 0 {
		return ""
	}
	return n.Paths[0]
}

// Terms are how long a reservation lives without a repeat.
type Terms struct {
	TTL time.Duration // of a waiting claim, and of a hold; 0: DefaultTTL
	For time.Duration // of a hold, if longer; other callers see it as the expected duration (R8); 0: TTL
}

// check returns an error with everything that is wrong with t.
func (t Terms) check() error {
	s := lockkeeper.Session{ID: "x", TTL: t.ttl()}
	err := s.Check(false)
	if t.For != 0 && (t.For < lockkeeper.MinTTL || t.For > lockkeeper.MaxTTL) {
		err = joinInvalid(err, lockkeeper.Invalid("hold for %s is out of range: %s to %s", t.For, lockkeeper.MinTTL,
			lockkeeper.MaxTTL))
	}
	return err
}

// ttl returns the TTL of a waiting claim. It is not longer than For.
func (t Terms) ttl() time.Duration {
	ttl := cmp.Or(t.TTL, DefaultTTL)
	if t.For > 0 {
		ttl = min(ttl, t.For)
	}
	return ttl
}

// A Request describes the claim that a name grabs.
type Request struct {
	As       string
	Targets  []lockkeeper.Target // in any order
	Priority int
	Note     string // the purpose, for people
	Link     string // where people find more
	Try      bool   // do not queue: if the claim is not granted at once, the answer is Ended and no claim remains
	Terms
}

// Name returns the owner.
func (r *Request) Name() Name {
	n := Name{As: r.As}
	for _, t := range r.Targets {
		n.Paths = append(n.Paths, t.Path)
	}
	return n
}

// Check returns an ErrInvalid with everything that is wrong with r; nil if r is valid.
func (r *Request) Check() error {
	want := r.want()
	return joinInvalid(r.Name().named(), joinInvalid(want.Check(), r.Terms.check()))
}

// want returns the claim that r describes. It sorts the targets by path, so that repeats may give
// them in any order.
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

// joinInvalid joins two ErrInvalid into one; either may be nil.
func joinInvalid(a, b error) error {
	var x, y *lockkeeper.Error
	if !errors.As(a, &x) {
		return b
	}
	if !errors.As(b, &y) {
		return a
	}
	return lockkeeper.Invalid("%s; %s", x.Detail, y.Detail)
}
