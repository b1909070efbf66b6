package lockkeeper

import "fmt"

// Reason says why a claim ended (R17). It is an error, so that
// errors.Is(err, lockkeeper.Stolen) works on the errors of a client.
type Reason uint8

const (
	// NoReason is the reason of a claim that has not ended.
	NoReason Reason = iota
	// Released by its holder.
	Released
	// Yielded: released by its holder after it had been asked to.
	Yielded
	// Stolen by a claim of higher priority after the bound that it had announced.
	Stolen
	// Expired: its session was not renewed in time, or its processes are gone.
	Expired
	// Overdue: it was held for longer than its longest hold plus the grace.
	Overdue
	// TimedOut: it was not granted within the bound of its wait.
	TimedOut
	// Cancelled by its own session while it waited.
	Cancelled
	// Revoked by an operator.
	Revoked
	// Deadlock: its wait could never have ended (R15).
	Deadlock
	// Superseded: its session was taken over by a resume that did not name it.
	Superseded
	// EngineRestarted: the engine came back without it.
	EngineRestarted
	// QuorumLost: the engine could be reached before the hold's deadline, but too few of its nodes could reach each
	// other.
	QuorumLost
	// Unreachable: the engine could not be reached before the hold's deadline.
	Unreachable
	// Suspended: this process or computer did not run until after the deadline.
	Suspended
	// Draining: the engine takes no new claims.
	Draining
	// Quota: a limit of the engine would have been exceeded.
	Quota
	reasons
)

var reasonNames = [reasons]string{
	NoReason: "none", Released: "released", Yielded: "yielded", Stolen: "stolen", Expired: "expired",
	Overdue: "overdue", TimedOut: "timed out", Cancelled: "cancelled", Revoked: "revoked",
	Deadlock: "deadlock", Superseded: "superseded", EngineRestarted: "engine restarted",
	QuorumLost: "quorum lost", Unreachable: "unreachable", Suspended: "suspended",
	Draining: "draining", Quota: "quota",
}

func (r Reason) String() string {
	if r >= reasons {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Error makes a Reason an error that errors.Is can look for.
func (r Reason) Error() string { return r.String() }

// MarshalText writes the reason's name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a reason's name and refuses any other text with [ErrInvalid].
func (r *Reason) UnmarshalText(text []byte) error {
	for i, name := range reasonNames {
		if name == string(text) {
			*r = Reason(i)
			return nil
		}
	}
	return invalidf("reason %q is unknown", text)
}

// WaitReason says why a claim waits (R17).
type WaitReason uint8

const (
	// HeldBy another claim, incompatible with this one.
	HeldBy WaitReason = iota + 1
	// Behind another waiting claim, incompatible with this one.
	Behind
	// OwnLimit: more units are in use than this claim's own limit allows.
	OwnLimit
	// QuietPeriod: a timed soft claim waits for its quiet period to run.
	QuietPeriod
	// AskedToYield: the blocking holder has been asked to yield.
	AskedToYield
	// Frozen by an operator.
	Frozen
	// Resuming: its session has not resumed since the engine restarted.
	Resuming
	waitReasons
)

var waitReasonNames = [waitReasons]string{
	HeldBy: "held by", Behind: "behind", OwnLimit: "own limit", QuietPeriod: "quiet period",
	AskedToYield: "asked to yield", Frozen: "frozen", Resuming: "resuming",
}

func (w WaitReason) String() string {
	if w == 0 || w >= waitReasons {
		return fmt.Sprintf("WaitReason(%d)", uint8(w))
	}
	return waitReasonNames[w]
}

// MarshalText writes the reason's name.
func (w WaitReason) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads a reason's name and refuses any other text with [ErrInvalid].
func (w *WaitReason) UnmarshalText(text []byte) error {
	for i, name := range waitReasonNames {
		if i > 0 && name == string(text) {
			*w = WaitReason(i)
			return nil
		}
	}
	return invalidf("wait reason %q is unknown", text)
}
