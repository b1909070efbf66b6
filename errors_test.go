package lockkeeper_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// An engine names at most MaxBlockers: a full list may lack some, and the error says so.
func TestErrorCountsNamedBlockers(t *testing.T) {
	by := lockkeeper.Blocker{Why: lockkeeper.HeldBy, Path: "db"}
	for n, want := range map[int]string{
		3:                          "db for 0s",
		4:                          "; held by s0.0 on db for 0s and 1 more",
		lockkeeper.MaxBlockers:     " and at least 5 more",
		lockkeeper.MaxBlockers - 1: " and 4 more",
	} {
		err := &lockkeeper.Error{
			Err:     lockkeeper.ErrNotAcquired,
			Blocked: slices.Repeat([]lockkeeper.Blocker{by}, n),
		}
		if text := err.Error(); !strings.HasSuffix(text, strings.ReplaceAll(want, "s0.0", by.Ref.String())) {
			t.Errorf("%d blockers: %s", n, text)
		}
	}
}
