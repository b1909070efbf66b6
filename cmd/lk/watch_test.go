package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// Each change is printed once, in words. The passing of time alone is no change.
func TestWatchTellsChanges(t *testing.T) {
	target := func(mode lockkeeper.Mode) []lockkeeper.Grant {
		return []lockkeeper.Grant{{Target: lockkeeper.Target{Path: "db", Mode: mode}}}
	}
	base := lockkeeper.Status{
		Ref:    lockkeeper.Ref{Session: "s", ID: 1},
		Change: 1,
		Grants: target(lockkeeper.ModeExclusive),
		Left:   lockkeeper.Forever,
		Label:  lockkeeper.Label{As: "ci-17"},
	}
	with := func(change func(*lockkeeper.Status)) lockkeeper.Status {
		s := base
		change(&s)
		return s
	}
	waiting := with(func(s *lockkeeper.Status) {
		s.State, s.Position = lockkeeper.Waiting, 2
		s.Blockers = []lockkeeper.Blocker{{
			Ref:   lockkeeper.Ref{Session: "t", ID: 1},
			Why:   lockkeeper.HeldBy,
			Path:  "db",
			Mode:  lockkeeper.ModeShared,
			Age:   time.Minute,
			Label: lockkeeper.Label{As: "ci-18"},
		}}
	})
	nearer := waiting
	nearer.Position, nearer.Age = 1, 2*time.Second
	held := with(func(s *lockkeeper.Status) { s.State, s.Fence = lockkeeper.Held, 41 })
	older := held
	older.Age = time.Hour
	asked := held
	asked.Asked = &lockkeeper.Asked{
		By:     lockkeeper.Ref{Session: "t", ID: 1},
		Reason: lockkeeper.Stolen,
		Left:   lockkeeper.Forever,
		Label:  lockkeeper.Label{As: "deploy", Note: "hotfix"},
	}
	overdue := held
	overdue.Asked = &lockkeeper.Asked{Reason: lockkeeper.Overdue, Left: 4*time.Second + 1}
	lapsed := held
	lapsed.Lapsed = true
	sharing := with(func(s *lockkeeper.Status) {
		s.State, s.Fence, s.Grants = lockkeeper.Held, 42, target(lockkeeper.ModeShared)
	})
	upgrading := sharing
	upgrading.Converting, upgrading.Waits = true, []lockkeeper.WaitReason{lockkeeper.HeldBy}
	ended := func(fence uint64, reason lockkeeper.Reason, text string) lockkeeper.Status {
		return with(func(s *lockkeeper.Status) {
			s.State, s.Fence, s.Reason, s.Text = lockkeeper.Ended, fence, reason, text
		})
	}
	frozen := with(func(s *lockkeeper.Status) { s.State, s.Change, s.Left = lockkeeper.Freezing, 0, time.Hour })
	thawed := with(func(s *lockkeeper.Status) { s.State, s.Change = lockkeeper.Ended, 0 })

	for name, c := range map[string]struct {
		see  []lockkeeper.Status // a second apart
		want string              // events and texts
	}{
		"a whole life": {[]lockkeeper.Status{waiting, waiting, nearer, held, older, ended(41, lockkeeper.Released, "")},
			"waits: ci-17 waits 2nd in line for db: held by ci-18 for 1m; waits: ci-17 waits 1st in line for db: held by " +
				"ci-18 for 1m; " +
				"holds: ci-17 holds db (fence 41, waited 3s); released: ci-17 released db (held 1h)"},
		"asked, and not any longer": {[]lockkeeper.Status{older, asked, asked, held, overdue},
			"holds: ci-17 holds db (fence 41, for 1h); asked: ci-17 is asked to yield db, by deploy (hotfix); " +
				"kept: ci-17 may keep db: it is not asked to yield any longer; asked: ci-17 is asked to yield db, since it is " +
				"held for too long: else it is taken in 5s"},
		"asked, given up, and then the ask withdrawn": {[]lockkeeper.Status{held, asked, lapsed,
			ended(41, lockkeeper.Stolen, "by deploy")},
			"holds: ci-17 holds db (fence 41); asked: ci-17 is asked to yield db, by deploy (hotfix); " +
				"lost: ci-17 lost db: stolen: by deploy (held 1s)"},
		"upgrade": {[]lockkeeper.Status{sharing, upgrading,
			with(func(s *lockkeeper.Status) { s.State, s.Fence = lockkeeper.Held, 43 })},
			"holds: ci-17 holds shared db (fence 42); upgrades: ci-17 waits to have shared db alone: held by; holds: ci-17 " +
				"holds db (fence 43, waited 1s)"},
		"freeze": {[]lockkeeper.Status{frozen, frozen, thawed},
			"frozen: db is frozen by ci-17 for 1h more; thawed: db is not frozen any more"},
		"yielded": {[]lockkeeper.Status{held, ended(41, lockkeeper.Yielded, "")},
			"holds: ci-17 holds db (fence 41); released: ci-17 released db, as it was asked to (held 1s)"},
		"expired": {[]lockkeeper.Status{ended(41, lockkeeper.Expired, "")}, "lost: ci-17 lost db: expired"},
		"revoked": {[]lockkeeper.Status{ended(41, lockkeeper.Revoked, "stuck")},
			"lost: ci-17 lost db: revoked: stuck"},
		"how is unknown": {[]lockkeeper.Status{ended(41, lockkeeper.NoReason, "")}, "released: ci-17 holds db no longer"},
		"timed out": {[]lockkeeper.Status{nearer, ended(0, lockkeeper.TimedOut, "")}, "waits: ci-17 waits 1st in " +
			"line for db: held by ci-18 for 1m; refused: ci-17 did not get db in its time (waited 3s)"},
		"cancelled": {[]lockkeeper.Status{ended(0, lockkeeper.Cancelled, "")}, "left: ci-17 waits for db no longer"},
		"deadlock": {[]lockkeeper.Status{ended(0, lockkeeper.Deadlock, "a knot")},
			"refused: ci-17 does not get db: deadlock: a knot"},
	} {
		w := watcher{asJSON: true, seen: make(map[subject]sighting)}
		var told []string
		now := time.Date(2026, 1, 2, 12, 3, 4, 0, time.Local)
		for _, s := range c.see {
			var out strings.Builder
			w.to = &out
			if err := w.see(s, now); err != nil {
				t.Fatal(err)
			}
			if out.Len() > 0 {
				var e eventJSON
				if err := json.Unmarshal([]byte(out.String()), &e); err != nil || !e.Time.Equal(now) || e.Status.Ref != s.Ref {
					t.Errorf("%s is read as %+v, %v", out.String(), e, err)
				}
				told = append(told, e.Event+": "+e.Text)
			}
			now = now.Add(time.Second)
		}
		if got := strings.Join(told, "; "); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// A bar is as long as its count, until that would be too long.
func TestBars(t *testing.T) {
	for _, c := range []struct {
		count listing.Count
		most  int
		want  string
	}{
		{listing.Count{Held: 2, Waiting: 3}, 5, "##..."},
		{listing.Count{Held: 1}, 400, "#"},
		{listing.Count{Held: 20, Waiting: 380}, 400, "##" + strings.Repeat(".", 38)},
	} {
		if got := bar(c.count, c.most); got != c.want {
			t.Errorf("%+v: %s, want %s", c.count, got, c.want)
		}
	}
}
