package httpapi

import (
	"errors"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// onlyTried is the error of who would not wait at all: it was in no line, so it has
// neither a place nor a time that was over. Other errors stay as they are.
func onlyTried(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrNotAcquired || e.Reason != lockkeeper.TimedOut {
		return err
	}
	tried := *e
	tried.Reason, tried.Position = lockkeeper.NoReason, 0
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
