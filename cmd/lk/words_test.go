package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// Text that looks like a mode but is none is an error, not a path.
func TestParseWith(t *testing.T) {
	for spec, want := range map[string]string{
		"db/a":           "exclusive db/a",
		"x:q:y":          "exclusive q:y",
		"s:db":           "shared db",
		"3:db":           "1 of 3 permits of db",
		"2/3:db":         "2 of 3 permits of db",
		"https://host/x": "exclusive https:/host/x", "db/a:b": "exclusive db/a:b", "a.b:80": "exclusive a.b:80",
		"q:y": "", "shared:y": "", "s4:y": "", "q:/y": "", "q:": "",
	} {
		target, err := parseWith(spec)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "--with x:"+spec)):
			t.Errorf("%s: got %s, %v; want it refused", spec, target, err)
		case want != "" && (err != nil || target.String() != want):
			t.Errorf("%s: got %q, %v; want %q", spec, target, err, want)
		}
	}
}

func TestOrdinal(t *testing.T) {
	var got []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 102, 111} {
		got = append(got, ordinal(n))
	}
	if s := strings.Join(got, " "); s != "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th" {
		t.Error(s)
	}
}

func TestWaitLine(t *testing.T) {
	ci := lockkeeper.Blocker{
		Ref: lockkeeper.Ref{Session: "s", ID: 1}, Why: lockkeeper.HeldBy, Path: "db/a", Age: 2 * time.Minute,
		Label: lockkeeper.Label{As: "ci-17", Note: "nightly load test", Link: "http://ci/17"},
	}
	for _, c := range []struct {
		status lockkeeper.Status
		want   string
	}{
		{lockkeeper.Status{Position: 2, Blockers: []lockkeeper.Blocker{ci}},
			"held by ci-17 for 2m (nightly load test, http://ci/17), 2nd in line"},
		{lockkeeper.Status{
			Position: 1,
			ETA:      time.Minute,
			Blockers: []lockkeeper.Blocker{{Ref: ci.Ref, Why: lockkeeper.Behind}, ci},
		},
			"behind s.1 for <1s; 1 more is in the way; 1st in line, about 1m to go"},
		{lockkeeper.Status{Position: 1, Blockers: slices.Repeat([]lockkeeper.Blocker{ci}, lockkeeper.MaxBlockers)},
			"held by ci-17 for 2m (nightly load test, http://ci/17); at least 7 more are in the way; 1st in line"},
		{lockkeeper.Status{Position: 9, Blockers: []lockkeeper.Blocker{ci, {Ref: ci.Ref, Why: lockkeeper.Behind}}},
			"held by ci-17 for 2m (nightly load test, http://ci/17); at least 1 more is in the way; 9th in line"},
		{lockkeeper.Status{Blockers: []lockkeeper.Blocker{{
			Ref:  ci.Ref,
			Why:  lockkeeper.AskedToYield,
			Age:  time.Minute,
			Left: 29*time.Second + 1,
		}}},
			"held by s.1 for 1m, asked to yield, for at most 30s more"},
		{lockkeeper.Status{
			Position: 1,
			Waits:    []lockkeeper.WaitReason{lockkeeper.OwnLimit},
			Grants: []lockkeeper.Grant{{Target: lockkeeper.Target{
				Path:  "db",
				Mode:  lockkeeper.ModePermits,
				Units: 1,
				Limit: 3,
			}}},
		}, "more would be in use than its own limit allows: 3 of db, 1st in line"},
		{lockkeeper.Status{Blockers: []lockkeeper.Blocker{{
			Why:   lockkeeper.Frozen,
			Left:  time.Hour,
			Label: lockkeeper.Label{Note: "disk swap"},
		}}},
			"frozen by an operator (disk swap), for at most 1h more"},
		{lockkeeper.Status{
			Position: 1,
			Waits:    []lockkeeper.WaitReason{lockkeeper.Frozen},
			Blockers: []lockkeeper.Blocker{{Why: lockkeeper.Frozen, Left: time.Hour, Label: lockkeeper.Label{As: "ops"}}},
		},
			"frozen by ops, for at most 1h more"},
		{lockkeeper.Status{Position: 1, Waits: []lockkeeper.WaitReason{lockkeeper.QuietPeriod}},
			"nobody is in its way; it waits until it has been quiet there for as long as it asked for, 1st in line"},
		{lockkeeper.Status{Position: 1, Waits: []lockkeeper.WaitReason{lockkeeper.Resuming}},
			"the engine has restarted, and the program that waits has not come back yet, 1st in line"},
		{lockkeeper.Status{}, "it is taken"},
	} {
		if got := waitLine(c.status); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

// Every claim of the chain has one line, also where the chain goes through a holder
// that waits for something else itself.
func TestWhyFollowsTheChain(t *testing.T) {
	ref := func(session string) lockkeeper.Ref { return lockkeeper.Ref{Session: session, ID: 1} }
	claim := func(as string, state lockkeeper.State, path lockkeeper.Path,
		blockers ...lockkeeper.Blocker) lockkeeper.Status {
		return lockkeeper.Status{
			Ref: ref(as), State: state, Age: time.Minute, Fence: 7, Label: lockkeeper.Label{As: as},
			Grants:   []lockkeeper.Grant{{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}}},
			Blockers: blockers,
		}
	}
	by := func(as string, why lockkeeper.WaitReason, path lockkeeper.Path) lockkeeper.Blocker {
		return lockkeeper.Blocker{
			Ref:   ref(as),
			Why:   why,
			Path:  path,
			Mode:  lockkeeper.ModeExclusive,
			Age:   time.Minute,
			Label: lockkeeper.Label{As: as},
		}
	}
	nested := claim("nested", lockkeeper.Waiting, "files", by("root", lockkeeper.HeldBy, "files"))
	nested.Inside = ref("middle")
	middle := claim("middle", lockkeeper.Held, "pool")
	middle.Inside = ref("outer")
	all := []lockkeeper.Status{
		claim("outer", lockkeeper.Held, "db/a"),
		claim("root", lockkeeper.Held, "files"),
		claim("cleaner", lockkeeper.Waiting, "db", by("outer", lockkeeper.HeldBy, "db/a")),
		claim("late", lockkeeper.Waiting, "db/b", by("cleaner", lockkeeper.Behind, "db")),
		middle, nested,
	}
	const outer, root = "outer holds exclusive db/a for 1m, fence 7\n", "root holds exclusive files for 1m, fence 7\n"
	const pool = "middle holds exclusive pool for 1m, fence 7\n"
	const cleaner, late = "cleaner waits for exclusive db for 1m: held by outer at db/a\n", "late waits for exclusive " +
		"db/b for 1m: behind cleaner at db\n"
	const inner = "nested, inside the hold of middle, waits for exclusive files for 1m: held by root\n"
	for path, want := range map[lockkeeper.Path]string{
		"db/b":  outer + root + pool + cleaner + late + inner,
		"other": "other is free\n",
		"db/a":  outer + root + pool + cleaner + inner,
		"":      outer + root + pool + cleaner + late + inner,
	} {
		var got strings.Builder
		if err := writeWhy(&got, path, all); err != nil || got.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, got.String(), want)
		}
	}
	var got strings.Builder
	if writeWhy(&got, "db", all[:1]); got.String() != "outer holds exclusive db/a for 1m, fence 7\n" {
		t.Errorf("held only: %s", got.String())
	}
	got.Reset()
	if writeWhy(&got, "", all[:2]); got.String() != "nobody waits\n" {
		t.Errorf("nobody waits: %s", got.String())
	}
	got.Reset()
	upgrade := claim("reader", lockkeeper.Held, "db", by("other", lockkeeper.HeldBy, "db"))
	upgrade.Converting, upgrade.Position = true, 1
	if writeWhy(&got, "db", []lockkeeper.Status{upgrade}); got.String() != "reader holds exclusive db for 1m and waits "+
		"to have it alone: 1st in line, held by other for 1m\n" {
		t.Errorf("upgrade: %s", got.String())
	}
	got.Reset()
	hurried, own := all[0], all[3]
	hurried.Asked = &lockkeeper.Asked{
		Reason: lockkeeper.Revoked,
		Left:   29*time.Second + 1,
		Label:  lockkeeper.Label{As: "ops", Note: "stuck"},
	}
	own.Blockers, own.Waits, own.ETA, own.Position = nil, []lockkeeper.WaitReason{lockkeeper.QuietPeriod}, 2*time.Minute, 1
	frozen := own
	frozen.Waits, frozen.ETA = []lockkeeper.WaitReason{lockkeeper.Frozen}, 0
	frozen.Blockers = []lockkeeper.Blocker{{Why: lockkeeper.Frozen, Path: "db/b", Label: lockkeeper.Label{As: "ops"}}}
	for text, want := range map[string]string{
		waitText(frozen):  "late waits for exclusive db/b for 1m",
		stateText(frozen): "behind a freeze",
	} {
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	writeWhy(&got, "db/b", []lockkeeper.Status{frozen})
	if want := "late waits for exclusive db/b for 1m: frozen by ops\n"; got.String() != want {
		t.Errorf("behind a freeze: %q, want %q", got.String(), want)
	}
	got.Reset()
	writeWhy(&got, "db/a", []lockkeeper.Status{hurried})
	writeWhy(&got, "db/b", []lockkeeper.Status{own})
	if want := `outer holds exclusive db/a for 1m, fence 7; it is asked to yield, by the operator ops (stuck): else it is taken in 30s
late waits for exclusive db/b for 1m: 1st in line, about 2m to go, nobody is in its way; it waits until it has been quiet there for as long as it asked for
`; got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// A queue of n waiters is n+1 lines, and each waiter names the one before it.
func TestWhyNamesEachClaimOnce(t *testing.T) {
	engine := memlock.New()
	defer engine.Close()
	key := func(name string) lockkeeper.Key {
		lease, err := engine.Attach(t.Context(), lockkeeper.Session{
			ID:    name,
			TTL:   time.Minute,
			Label: lockkeeper.Label{As: name},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return lease.Key
	}
	const n = 20
	for i := range n + 1 {
		name := fmt.Sprintf("w%d", i)
		want := lockkeeper.Want{
			ID:      1,
			Wait:    lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "q", Mode: lockkeeper.ModeExclusive}},
		}
		want.As = name
		if _, err := engine.Claim(t.Context(), key(name), want); err != nil {
			t.Fatal(err)
		}
	}
	all, err := listAll(t.Context(), lockkeeper.New(engine), lockkeeper.Query{})
	var got strings.Builder
	if err != nil || writeWhy(&got, "q", all) != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	if len(lines) != n+1 || !strings.HasPrefix(lines[0], "w0 holds") ||
		!strings.Contains(lines[3], "w3 waits for exclusive q for <1s: 3rd in line, behind w2") {
		t.Errorf("%d lines:\n%s", len(lines), got.String())
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\tb\xffcé", 5); got != "a b?c" {
		t.Errorf("got %q", got)
	}
}

func TestAbsoluteURL(t *testing.T) {
	here, err := absoluteURL("sqlite:locks.db")
	if err != nil || here == "sqlite:locks.db" || !strings.HasSuffix(here, "/cmd/lk/locks.db") {
		t.Errorf("sqlite:locks.db is %q, %v", here, err)
	}
	for _, same := range []string{"mem:", "sqlite:/a/b", "lk://a,b", "postgres://x/y", "sqlite::memory:"} {
		if got, err := absoluteURL(same); err != nil || got != same {
			t.Errorf("%s is %q, %v", same, got, err)
		}
	}
}
