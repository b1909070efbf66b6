package listing_test

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

func claim(id uint64, state lockkeeper.State, as string, path lockkeeper.Path, blockers ...uint64) lockkeeper.Status {
	st := lockkeeper.Status{Ref: lockkeeper.Ref{Session: "s", ID: id}, State: state, Label: lockkeeper.Label{As: as}}
	st.Grants = []lockkeeper.Grant{{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}}}
	for _, b := range blockers {
		st.Blockers = append(st.Blockers, lockkeeper.Blocker{Ref: lockkeeper.Ref{Session: "s", ID: b}})
	}
	return st
}

// TestExplainingFollowsBlockers: Explaining follows blockers to the end, also round a cycle, and
// returns each claim once.
func TestExplainingFollowsBlockers(t *testing.T) {
	all := []lockkeeper.Status{
		claim(1, lockkeeper.Held, "end", "c"), claim(2, lockkeeper.Waiting, "middle", "b", 1),
		claim(3, lockkeeper.Waiting, "first", "a/x", 2, 1, 4),
		claim(4, lockkeeper.Waiting, "cycle", "d", 3), claim(5, lockkeeper.Held, "stranger", "e"),
	}
	for path, want := range map[lockkeeper.Path]string{
		"a":       "[1 2 3 4]",
		"e":       "[5]",
		"c":       "[1]",
		"nowhere": "[]",
		"":        "[1 2 3 4]",
	} {
		var ids []uint64
		for _, s := range listing.Explaining(path, all) {
			ids = append(ids, s.Ref.ID)
		}
		if got := fmt.Sprint(ids); got != want {
			t.Errorf("%q is explained by %s, want %s", path, got, want)
		}
	}
}

// TestStatsAreBounded: the sums are exact even if there are more rows than MaxRows.
func TestStatsAreBounded(t *testing.T) {
	var all []lockkeeper.Status
	for i := range uint64(listing.MaxRows + 5) {
		all = append(all, claim(i+1, lockkeeper.Held, "", lockkeeper.Path(fmt.Sprint("p", i))))
	}
	s := listing.StatsOf(all)
	if s.Held != listing.MaxRows+5 || len(s.Paths) != listing.MaxRows || len(s.Owners) != listing.MaxRows {
		t.Errorf("%d held, %d paths, %d owners", s.Held, len(s.Paths), len(s.Owners))
	}
}
