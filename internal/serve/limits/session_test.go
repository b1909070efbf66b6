package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

var errLost = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "lost on the way"}

// uses fails the test unless the identity uses that much.
func uses(t *testing.T, i *Identity, when string, sessions, claims, waiting int) {
	t.Helper()
	if s, c, w := i.Used(Sessions), i.Used(Claims), i.Used(Waiting); s != sessions || c != claims || w != waiting {
		t.Errorf("%s: %d sessions, %d claims, %d waiting count, want %d, %d, %d", when, s, c, w, sessions, claims, waiting)
	}
}

// leaseOf returns the lease of an attach of the session s.
func leaseOf(epoch uint64, claims ...lockkeeper.Status) *lockkeeper.Lease {
	return &lockkeeper.Lease{Key: lockkeeper.Key{Session: "s", Epoch: epoch}, TTL: time.Minute, Claims: claims}
}

// attaches attaches the session s under that epoch.
func attaches(t *testing.T, i *Identity, epoch uint64, claims ...lockkeeper.Status) {
	t.Helper()
	s, generation, err := i.Attaching("s", time.Minute, &Quota{})
	if err != nil {
		t.Fatal(err)
	}
	s.Attached(leaseOf(epoch, claims...), generation, nil)
}

// opening begins a call that opens the session s with claim 1, which may wait.
func opening(t *testing.T, i *Identity) Opening {
	t.Helper()
	w := lockkeeper.Want{ID: 1, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{{Path: "a"}}}
	o, err := i.Opening("s", time.Minute, &w, &Quota{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// claimed makes claim 1 of the session s under that epoch. It returns a function that takes the
// answer.
func claimed(t *testing.T, i *Identity, epoch uint64, wait time.Duration) func(*lockkeeper.Status, error) {
	t.Helper()
	k := lockkeeper.Key{Session: "s", Epoch: epoch}
	w := lockkeeper.Want{ID: 1, Wait: wait, Targets: []lockkeeper.Target{{Path: "a"}}}
	s, err := i.Claiming(k, &w, &Quota{})
	if err != nil {
		t.Fatal(err)
	}
	return func(st *lockkeeper.Status, err error) { s.Claimed(k, 1, st, err) }
}

// The refusal of an attach says nothing about another one, which came first and opened the session.
func TestRefusedAttachKeepsSessionThatAnotherMayHaveOpened(t *testing.T) {
	i := New(DefaultBounds()).Identity("ci")
	refused, generation, err := i.Attaching("s", time.Minute, &Quota{})
	if err != nil {
		t.Fatal(err)
	}
	o := opening(t, i)
	o.Opened(leaseOf(5, status("s", 1, 1, lockkeeper.Waiting, "a")), errLost)
	refused.Attached(&lockkeeper.Lease{}, generation, &lockkeeper.Error{Err: lockkeeper.ErrSession, Epoch: 5})
	uses(t, i, "after the refusal", 1, 1, 1)
	attaches(t, i, 6)
	uses(t, i, "taken over without the claim", 1, 0, 0)
}

// An attach that alone was refused, or not begun because the engine has an outage, leaves nothing.
func TestRefusedAttachesLeaveNothing(t *testing.T) {
	i := New(DefaultBounds()).Identity("ci")
	outage := roundtrip.NoEffect(lockkeeper.ErrUnavailable)
	for _, refusal := range []error{lockkeeper.ErrDenied, lockkeeper.ErrDenied, outage} {
		s, generation, err := i.Attaching("s", time.Minute, &Quota{})
		if err != nil {
			t.Fatal(err)
		}
		uses(t, i, "in flight", 1, 0, 0)
		s.Attached(&lockkeeper.Lease{}, generation, refusal)
		uses(t, i, "refused", 0, 0, 0)
	}
}

// A session counts while an attach may have opened it, whatever happens to other attaches and to
// the former session of its id.
func TestSessionCountsWhileAttachMayHaveOpenedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(DefaultBounds()).Identity("ci")
		first, generation, _ := i.Attaching("s", time.Minute, &Quota{})
		second, later, _ := i.Attaching("s", time.Minute, &Quota{})
		first.Attached(&lockkeeper.Lease{}, generation, lockkeeper.ErrDenied)
		uses(t, i, "another is in flight", 1, 0, 0)
		second.Attached(leaseOf(1), later, nil)

		left, asked := i.Ending("s")
		next, generation, _ := i.Attaching("s", time.Minute, &Quota{})
		next.Attached(&lockkeeper.Lease{}, generation, errLost)
		i.Ended(left, asked, lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Ending{Kind: lockkeeper.Leave}, nil)
		uses(t, i, "the answer to an attach was lost", 1, 0, 0)
		time.Sleep(2 * time.Minute)
		if sessions, _ := i.Remembered(); sessions != 0 {
			t.Errorf("%d sessions are remembered after the TTL", sessions)
		}
		uses(t, i, "after the TTL", 0, 0, 0)
	})
}

// The answer to a departure comes after calls that opened the next session of that id.
func TestLateDepartureKeepsNextSession(t *testing.T) {
	left := lockkeeper.Ending{Kind: lockkeeper.Leave}
	key := lockkeeper.Key{Session: "s", Epoch: 1}
	t.Run("opened with a claim", func(t *testing.T) {
		i := New(DefaultBounds()).Identity("ci")
		attaches(t, i, 1)
		s, generation := i.Ending("s")
		o := opening(t, i)
		i.Ended(s, generation, key, left, nil)
		uses(t, i, "in flight", 1, 1, 1)
		o.Opened(leaseOf(2, status("s", 1, 1, lockkeeper.Held, "a")), nil)
		uses(t, i, "opened", 1, 1, 0)
		ended(i, "s", lockkeeper.Key{Session: "s", Epoch: 2}, left, nil)
		uses(t, i, "left", 0, 0, 0)
	})
	t.Run("claimed under an epoch that no answer stated", func(t *testing.T) {
		i := New(DefaultBounds()).Identity("ci")
		attaches(t, i, 1, status("s", 2, 1, lockkeeper.Held, "b"))
		s, generation := i.Ending("s")
		answer := claimed(t, i, 2, lockkeeper.Forever)
		i.Ended(s, generation, key, left, nil)
		uses(t, i, "in flight", 1, 1, 1)
		answer(nil, errLost)
		uses(t, i, "lost", 1, 1, 1)
	})
}

// The engine had no such claim when it performed a release. The claim may have been made since.
func TestLateEndingKeepsClaimMadeSince(t *testing.T) {
	waiting := status("s", 1, 1, lockkeeper.Waiting, "a")
	for name, lost := range map[string]error{"known": nil, "its answer is lost": errLost} {
		t.Run(name, func(t *testing.T) {
			i := New(DefaultBounds()).Identity("ci")
			attaches(t, i, 1)
			s, generation := i.Ending("s")
			claimed(t, i, 1, lockkeeper.Forever)(&waiting, lost)
			release := lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}
			key := lockkeeper.Key{Session: "s", Epoch: 1}
			i.Ended(s, generation, key, release, lockkeeper.ErrNotHeld)
			uses(t, i, "not held", 1, 1, 1)
			ended(i, "s", key, release, lockkeeper.ErrNotHeld)
			uses(t, i, "not held, requested after that", 1, 0, 0)
		})
	}
}

// A claim counts for all it may need if what is known of its id is of an earlier epoch.
func TestClaimUnderLaterEpochCountsInFull(t *testing.T) {
	i := New(DefaultBounds()).Identity("ci")
	attaches(t, i, 1)
	held := status("s", 1, 1, lockkeeper.Held, "a")
	claimed(t, i, 1, 0)(&held, nil)
	uses(t, i, "held", 1, 1, 0)
	answer := claimed(t, i, 2, lockkeeper.Forever)
	uses(t, i, "in flight", 1, 1, 1)
	answer(nil, lockkeeper.ErrSession)
	uses(t, i, "refused", 1, 1, 1)
	attaches(t, i, 3, held)
	uses(t, i, "listed", 1, 1, 0)
}

// A session whose TTL no answer has stated ends, although the answer to a renewal was lost.
func TestSessionOfUnknownTTLEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(DefaultBounds()).Identity("ci")
		claimed(t, i, 1, 0)(nil, errLost)
		uses(t, i, "lost", 1, 1, 0)
		s, generation := i.Renewing("s")
		i.Renewed(s, "s", generation, &lockkeeper.Lease{}, errLost)
		time.Sleep(time.Hour)
		if sessions, claims := i.Remembered(); sessions+claims != 0 {
			t.Errorf("%d sessions and %d claims are remembered", sessions, claims)
		}
		uses(t, i, "after an hour", 0, 0, 0)
	})
}
