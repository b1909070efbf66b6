package wire

import (
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// codes are the sentinels in the order of their numbers on the wire.
var codes = [...]error{
	Code_CODE_INVALID:      lockkeeper.ErrInvalid,
	Code_CODE_UNSUPPORTED:  lockkeeper.ErrUnsupported,
	Code_CODE_DENIED:       lockkeeper.ErrDenied,
	Code_CODE_NOT_ACQUIRED: lockkeeper.ErrNotAcquired,
	Code_CODE_DEADLOCK:     lockkeeper.ErrDeadlock,
	Code_CODE_LOST:         lockkeeper.ErrLost,
	Code_CODE_NOT_HELD:     lockkeeper.ErrNotHeld,
	Code_CODE_SESSION:      lockkeeper.ErrSession,
	Code_CODE_UNAVAILABLE:  lockkeeper.ErrUnavailable,
}

// SendError makes a message of err. What is no error of package lockkeeper is sent
// as ErrUnavailable with its words, since nothing is known of what happened.
func SendError(err error) *Error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		e = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
		for _, sentinel := range codes[1:] {
			if errors.Is(err, sentinel) {
				e = &lockkeeper.Error{Err: sentinel}
				break
			}
		}
	}
	m := &Error{
		Code: Code(max(slices.Index(codes[:], e.Err), 0)), Path: string(e.Path), Reason: Reason(e.Reason), Detail: e.Detail,
		Blocked: sendBlockers(e.Blocked), Place: int64(e.Place), Eta: sendDuration(e.ETA), Epoch: e.Epoch,
		Stale: sendDuration(e.Stale),
	}
	if e.Cause != nil { // the error itself stays where it is: only words can cross
		if m.Detail != "" {
			m.Detail += ": "
		}
		m.Detail += e.Cause.Error()
	}
	return m
}

// Read is the error that e carries. One with a code that is not known here is an
// ErrUnavailable.
func (e *Error) Read() error {
	sentinel := lockkeeper.ErrUnavailable
	if c := e.GetCode(); c > 0 && int(c) < len(codes) {
		sentinel = codes[c]
	}
	return &lockkeeper.Error{
		Err:     sentinel,
		Path:    lockkeeper.Path(e.GetPath()),
		Reason:  narrow[lockkeeper.Reason](e.GetReason()),
		Detail:  e.GetDetail(),
		Blocked: readBlockers(e.GetBlocked()),
		Place:   readInt(e.GetPlace()),
		ETA:     readDuration(e.GetEta()),
		Epoch:   e.GetEpoch(),
		Stale:   readDuration(e.GetStale()),
	}
}

// SendGuarantees makes a message of g.
func SendGuarantees(g lockkeeper.Guarantees) *Guarantees {
	return &Guarantees{
		Name: g.Name, Features: g.Features.Names(), Reach: string(g.Reach), Survives: g.Survives,
		Fences: g.Fences, Clock: g.Clock, Breaks: g.Breaks, Epoch: g.Epoch,
	}
}

// Read is what the server's engine declares. Features that are not known here
// are left out.
func (g *Guarantees) Read() lockkeeper.Guarantees {
	read := lockkeeper.Guarantees{
		Name: g.GetName(), Reach: lockkeeper.Reach(g.GetReach()), Survives: g.GetSurvives(),
		Fences: g.GetFences(), Clock: g.GetClock(), Breaks: g.GetBreaks(), Epoch: g.GetEpoch(),
	}
	for bit := lockkeeper.Features(1); bit&lockkeeper.AllFeatures != 0; bit <<= 1 {
		if slices.Contains(g.GetFeatures(), bit.String()) {
			read.Features |= bit
		}
	}
	return read
}
