package httpapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// refused reports whether err is a refusal: it is certain that nothing was done.
func refused(err error) bool {
	return errors.Is(err, lockkeeper.ErrInvalid) || errors.Is(err, lockkeeper.ErrDenied) ||
		errors.Is(err, lockkeeper.ErrUnsupported)
}

// clear ends the session of a claim that was refused, unless it has the claim of a
// repeat. A key of its own, that no other request can find, makes that sure: if one
// claims meanwhile this key is an old one. epoch is the one that is known.
func (t *tenancy) clear(ctx context.Context, epoch uint64) {
	if epoch == 0 {
		return // it was refused before it had a session
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
	defer cancel()
	if st, err := look(ctx, t.engine, t.ref()); err != nil || st.State != 0 {
		return
	}
	s := lockkeeper.Session{ID: t.session, TTL: t.ttl, Named: []uint64{theClaim}, Epoch: epoch, Outlive: true}
	lease, err := t.engine.Attach(ctx, s, nil)
	if err != nil {
		return // a repeat has come, or it ends with its TTL
	}
	for i := range lease.Claims {
		if lease.Claims[i].Ref.ID == theClaim {
			return
		}
	}
	if t.engine.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave}) == nil {
		t.memory.forget(t.owner, t.session, epoch)
	}
}

// onlyTried is the error of who would not wait at all: it was in no line, so it has
// neither a place nor a time that was over. Other errors stay as they are.
func onlyTried(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrNotAcquired || e.Reason != lockkeeper.TimedOut {
		return err
	}
	tried := *e
	tried.Reason, tried.Place = lockkeeper.NoReason, 0
	return &tried
}

// neverPasses reports whether a quota bounds what was asked for itself, and not how
// much there is at a time: it is refused however often it is asked for. The gate
// tells these apart in words alone.
func neverPasses(err error) bool {
	var e *lockkeeper.Error
	return errors.As(err, &e) && e.Err == lockkeeper.ErrDenied && e.Reason == lockkeeper.Quota &&
		slices.ContainsFunc([]string{", the longest TTL that ", ", the highest that ",
			", the most that "}, func(words string) bool {
			return strings.Contains(e.Detail, words)
		})
}

// withAddress adds to the refusal of a TTL where Terraform's is written.
func withAddress(err error) error {
	var e *lockkeeper.Error
	if !neverPasses(err) || !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Detail += "; write a TTL that is allowed into lock_address, such as ?ttl=1h"
	return &told
}

// blockerText says who stands in the way, as people are told it elsewhere too.
func blockerText(b lockkeeper.Blocker) string {
	if text, ok := strings.CutPrefix(b.String(), lockkeeper.Frozen.String()+" "); ok && b.Why == lockkeeper.Frozen {
		return "frozen by " + text
	}
	return b.String()
}
