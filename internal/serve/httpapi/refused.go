package httpapi

import (
	"errors"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// withoutQueue returns the error of a claim that did not want to wait: it was in no queue, so it
// has no position and no timeout. Other errors stay as they are.
func withoutQueue(err error) error {
	if err == nil {
		return nil
	}
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrNotAcquired || e.Reason != lockkeeper.TimedOut {
		return err
	}
	tried := *e
	tried.Reason, tried.Position = lockkeeper.NoReason, 0
	return &tried
}

// isPermanentQuota reports whether a quota limits the request itself, and not what is in use at a
// time: a repeat is refused, too. The gate distinguishes these only by their text.
func isPermanentQuota(err error) bool {
	var e *lockkeeper.Error
	return errors.As(err, &e) && e.Err == lockkeeper.ErrDenied && e.Reason == lockkeeper.Quota &&
		slices.ContainsFunc([]string{", the longest TTL that ", ", the highest that ",
			", the most that "}, func(words string) bool {
			return strings.Contains(e.Detail, words)
		})
}

// withKeyHint returns the refusal of a request whose Idempotency-Key has the claim of another request. Ids and
// revisions, which the engine names, are not for clients of HTTP. Other errors stay as they are.
func withKeyHint(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrInvalid {
		return err
	}
	said, _, found := strings.Cut(e.Detail, ": use a new id,")
	if !found {
		return err
	}
	hinted := *e
	hinted.Detail = said + ": use another Idempotency-Key"
	return &hinted
}

// withAddressHint adds to the refusal of a TTL where the TTL of Terraform is configured.
func withAddressHint(err error) error {
	var e *lockkeeper.Error
	if !isPermanentQuota(err) || !errors.As(err, &e) {
		return err
	}
	hinted := *e
	hinted.Detail += "; give an allowed TTL in lock_address, such as ?ttl=1h"
	return &hinted
}

// blockerText describes a blocker for people, as lk does.
func blockerText(b lockkeeper.Blocker) string {
	if text, ok := strings.CutPrefix(b.String(), lockkeeper.Frozen.String()+" "); ok && b.Why == lockkeeper.Frozen {
		return "frozen by " + text
	}
	return b.String()
}
