package sqlitelock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
)

// script is one life of a process, in steps of one call each: everything that
// changes rows is in it.
func script(e *Engine) []func() error {
	ctx := context.Background()
	keys := make(map[string]lockkeeper.Key)
	attach := func(id string, named ...uint64) func() error {
		return func() error {
			lease, err := takeOver(ctx, e, lockkeeper.Session{ID: id, TTL: time.Hour, Named: named, Epoch: keys[id].Epoch}, nil)
			if err == nil {
				keys[id] = lease.Key
			}
			return err
		}
	}
	claim := func(id string, state lockkeeper.State, w lockkeeper.Want) func() error {
		return func() error {
			st, err := e.Claim(ctx, keys[id], w)
			if err == nil && w.Freeze == 0 && st.State != state {
				err = fmt.Errorf("%s is %s, want %s", st.Ref, st.State, state)
			}
			return err
		}
	}
	end := func(id string, ending lockkeeper.Ending) func() error {
		return func() error { return e.End(ctx, stating(keys[id], ending.ID), ending) }
	}
	renew := func(id string) func() error {
		return func() error { _, err := e.Renew(ctx, keys[id]); return err }
	}
	thief := exclusive(2, "site")
	thief.Priority, thief.Steal = 5, lockkeeper.Take
	freeze := lockkeeper.Want{
		ID:      3,
		Freeze:  time.Hour,
		Targets: []lockkeeper.Target{{Path: "frozen", Mode: lockkeeper.ModeExclusive}},
	}
	two := want(4, lockkeeper.ModePermits, "net")
	two.Targets = append(two.Targets, lockkeeper.Target{Path: "disk", Mode: lockkeeper.ModeShared})
	shared := want(2, lockkeeper.ModeShared, "site")
	return []func() error{
		attach("a"), attach("b"),
		claim("a", lockkeeper.Held, exclusive(1, "db")),
		claim("b", lockkeeper.Waiting, want(1, lockkeeper.ModeShared, "db/x")),
		renew("a"),
		claim("a", lockkeeper.Held, shared),
		claim("a", lockkeeper.Held, revised(shared, func(w *lockkeeper.Want) {
			w.Targets[0].Mode = lockkeeper.ModeExclusive
		})),
		claim("b", lockkeeper.Held, thief), // takes it at once
		claim("b", lockkeeper.Waiting, freeze),
		end("a", lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}), // b.1 is granted
		claim("a", lockkeeper.Held, two),
		claim("a", lockkeeper.Held, revised(two, func(w *lockkeeper.Want) { w.Priority = 3 })),
		end("a", lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "frozen"}),
		claim("a", lockkeeper.Waiting, exclusive(5, "db")), // behind b.1
		end("a", lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "b", ID: 1}, Force: true}),
		attach("a", 4, 5), renew("a"), // under a new epoch
		end("b", lockkeeper.Ending{Kind: lockkeeper.Leave}),
		claim("a", lockkeeper.Held, exclusive(6, "last")),
	}
}

func want(id uint64, mode lockkeeper.Mode, path lockkeeper.Path) lockkeeper.Want {
	w := exclusive(id, path)
	w.Targets[0].Mode = mode
	if mode == lockkeeper.ModePermits {
		w.Targets[0].Units, w.Targets[0].Limit = 2, 5
	}
	return w
}

func revised(w lockkeeper.Want, change func(*lockkeeper.Want)) lockkeeper.Want {
	w.Targets = append([]lockkeeper.Target(nil), w.Targets...)
	w.Revision++
	change(&w)
	return w
}

// stating is k that says that all ids below this one are answered.
func stating(k lockkeeper.Key, answered uint64) lockkeeper.Key {
	k.LowestOpen = answered
	return k
}

// everyMoment lists the moments from 1 to n, in random order: a twelfth of them, or
// all in the deep mode.
func everyMoment(n int) []int {
	order := rand.Perm(n)
	for i := range order {
		order[i]++
	}
	return order[:testmode.Pick(n/12, n)]
}

// rowsOf is what a file says, but for instants; "" if it says nothing yet.
func rowsOf(path string) string {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return ""
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)") // the engine may be closing it just now
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	var tables, version, rows int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM sqlite_schema), user_version FROM pragma_user_version").Scan(
		&tables, &version); err != nil {
		return err.Error()
	}
	if tables == 0 {
		return ""
	}
	if version != ownSchema().Latest {
		return fmt.Sprintf("%d tables of version %d", tables, version)
	}
	if err := db.QueryRow("SELECT count(*) FROM meta").Scan(&rows); err != nil || rows == 0 {
		return ""
	}
	var text string
	err = db.QueryRow(`SELECT concat_ws(' | ', (SELECT concat_ws(' ', fences, tickets, epochs) FROM meta),
		(SELECT group_concat(concat_ws(' ', id, state, epoch), ', ') FROM (SELECT * FROM sessions ORDER BY id)),
		(SELECT group_concat(concat_ws(' ', session, id, state, targets, priority, ticket, fence, reason), ', ')
		FROM (SELECT * FROM claims ORDER BY session, id)),
		(SELECT group_concat(concat_ws(' ', path, state), ', ') FROM freezes))`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}
