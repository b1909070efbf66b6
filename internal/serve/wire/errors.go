package wire

import (
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// codes are the sentinels, by their numbers on the wire.
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

// NewError returns err as a message. An error that is not of package lockkeeper becomes an
// ErrUnavailable with its text, because the outcome is unknown.
func NewError(err error) *Error {
	e := asError(err)
	return &Error{
		Code: Code(codeOf(e)), Path: string(e.Path), Reason: Reason(e.Reason), Detail: detail(e),
		Blocked: newBlockers(e.Blocked), Position: int64(e.Position), Eta: newDuration(e.ETA), Epoch: e.Epoch,
		Stale: newDuration(e.Stale),
	}
}

// asError returns err as an error of package lockkeeper. Another error becomes an ErrUnavailable with
// its text, because the outcome is unknown.
func asError(err error) *lockkeeper.Error {
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		return e
	}
	for _, sentinel := range codes[1:] {
		if errors.Is(err, sentinel) {
			return &lockkeeper.Error{Err: sentinel}
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
}

// codeOf returns the code of the sentinel of e.
func codeOf(e *lockkeeper.Error) int { return max(slices.Index(codes[:], e.Err), 0) }

// sentinelOf returns the sentinel of a code. An unknown code becomes ErrUnavailable.
func sentinelOf(c Code) error {
	if c > 0 && int(c) < len(codes) {
		return codes[c]
	}
	return lockkeeper.ErrUnavailable
}

// detail returns the detail of e and the text of its cause: only the text can cross the network.
func detail(e *lockkeeper.Error) string {
	switch {
	case e.Cause == nil:
		return e.Detail
	case e.Detail == "":
		return e.Cause.Error()
	}
	return e.Detail + ": " + e.Cause.Error()
}

// Read returns e as an error. An unknown code becomes ErrUnavailable.
func (e *Error) Read() error {
	return &lockkeeper.Error{
		Err:      sentinelOf(e.GetCode()),
		Path:     lockkeeper.Path(e.GetPath()),
		Reason:   narrow[lockkeeper.Reason](e.GetReason()),
		Detail:   e.GetDetail(),
		Blocked:  readBlockers(e.GetBlocked()),
		Position: readInt(e.GetPosition()),
		ETA:      readDuration(e.GetEta()),
		Epoch:    e.GetEpoch(),
		Stale:    readDuration(e.GetStale()),
	}
}

// NewGuarantees returns g as a message.
func NewGuarantees(g lockkeeper.Guarantees) *Guarantees {
	return &Guarantees{
		Name: g.Name, Features: g.Features.Names(), Reach: string(g.Reach), Survives: string(g.Survives),
		Fences: string(g.Fences), FenceScope: string(g.FenceScope), Clock: string(g.Clock), Breaks: g.Breaks, Epoch: g.Epoch,
		SurvivesNote: g.Notes.Survives, FencesNote: g.Notes.Fences, ClockNote: g.Notes.Clock, InsteadNote: g.Notes.Instead,
		Partial: g.Partial,
	}
}

// Read returns the value of g, without unknown features.
func (g *Guarantees) Read() lockkeeper.Guarantees {
	read := lockkeeper.Guarantees{
		Name: g.GetName(), Reach: lockkeeper.Reach(g.GetReach()), Survives: lockkeeper.Survival(g.GetSurvives()),
		Fences: lockkeeper.FenceSpan(g.GetFences()), FenceScope: lockkeeper.FenceScope(g.GetFenceScope()),
		Clock: lockkeeper.ClockKind(g.GetClock()),
		Notes: lockkeeper.Notes{Survives: g.GetSurvivesNote(), Fences: g.GetFencesNote(), Clock: g.GetClockNote(),
			Instead: g.GetInsteadNote()},
		Breaks: g.GetBreaks(), Epoch: g.GetEpoch(), Partial: g.GetPartial(),
	}
	for bit := lockkeeper.Features(1); bit&lockkeeper.AllFeatures != 0; bit <<= 1 {
		if slices.Contains(g.GetFeatures(), bit.String()) {
			read.Features |= bit
		}
	}
	return read
}
