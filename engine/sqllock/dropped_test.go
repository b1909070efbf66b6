package sqllock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// When all rows are removed, all sessions are notified, all paths are free, and fences go on.
func TestFencesGoOnWhenAllIsRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		holder, waiter := join(t, openEngine(t, url), "holder", time.Minute), join(t, openEngine(t, url), "waiter",
			time.Minute)
		before := holder.claim(exclusive(1, 0, "a"), lockkeeper.Held).Fence
		waiter.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		db := opened(t, url)
		for _, table := range []string{"targets", "claims", "sessions", "freezes", "hold_times", "wakeups"} {
			db.mustExec(t, `TRUNCATE {`+table+`}`)
		}
		if st := waiter.await(1, lockkeeper.Ended); st.Reason != lockkeeper.Revoked ||
			st.Text != "its row in the database was removed" {
			t.Errorf("the waiter was notified of %s %q", st.Reason, st.Text)
		}
		if _, err := holder.Renew(bounded(t), holder.key); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("the holder is renewed: %v", err)
		}
		late := join(t, waiter.Engine, "late", time.Minute)
		if after := late.claim(exclusive(1, 0, "a"), lockkeeper.Held).Fence; after <= before {
			t.Errorf("the fence after it is %d, before it was %d", after, before)
		}
	})
}

// A holder whose rows of targets were removed excludes nobody, and is not notified. An operator
// finds it, and revokes it.
func TestTargetsOfAHolderRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		holder, next := join(t, openEngine(t, url), "holder", time.Minute), join(t, openEngine(t, url), "next", time.Minute)
		st := holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		opened(t, url).mustExec(t, `DELETE FROM {targets}`)
		next.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		if lease, err := holder.Renew(bounded(t), holder.key); err != nil || len(lease.Claims) != 1 ||
			lease.Claims[0].State != lockkeeper.Held {
			t.Errorf("the holder is renewed: %v, %v", lease.Claims, err)
		}
		found := false
		for _, f := range next.Examine(bounded(t)) {
			found = found || f.Check == "rows" && f.Grade == lockkeeper.Broken
		}
		if !found {
			t.Error("the examination did not find it")
		}
		next.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: st.Ref, Force: true})
		if st := holder.await(1, lockkeeper.Ended); st.Reason != lockkeeper.Revoked {
			t.Errorf("the holder was told %s", st.Reason)
		}
	})
}

// Rows of targets without their claims hide no other claim, however many they are.
func TestClaimsRemovedWithoutTargets(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		a, b := join(t, openEngine(t, url), "a", time.Minute), join(t, openEngine(t, url), "b", time.Minute)
		statement := `INSERT INTO {targets} (path, class, ticket, session, id,
			mode, ` + map[flavour]string{postgres: `rank`,
			mysql: "`rank`"}[a.db.flavour] + `)
			WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= 900) SELECT 'a',
			2, n + 1000 * m, 'removed', n + 1000 * m, 1, 0 FROM n, (SELECT 0 AS m UNION ALL SELECT 1) AS m`
		a.db.mustExec(t, statement)
		a.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		b.claim(exclusive(1, 0, "a"), lockkeeper.Ended)
		b.claim(exclusive(2, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		a.release(1)
		b.await(2, lockkeeper.Held)
		a.claim(exclusive(2, 0, "a"), lockkeeper.Ended)
	})
}

// A table that is dropped makes every call fail with the reason, and nobody is granted
// anything. When all of them are dropped and made again, the locks are free.
func TestTablesDropped(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		m := join(t, openEngine(t, url), "m", time.Minute)
		m.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		db := opened(t, url)
		db.mustExec(t, `DROP VIEW {held}`, `DROP VIEW {waiting}`, `DROP TABLE {claims}`)
		_, err := m.Claim(bounded(t), m.key, exclusive(2, 0, "b"))
		wantError(t, err, lockkeeper.ErrUnavailable, "claims")
		_, err = m.Renew(bounded(t), m.key)
		wantError(t, err, lockkeeper.ErrUnavailable, "claims")
		if db.flavour == postgres {
			db.mustExec(t, `DROP SCHEMA lockkeeper CASCADE`)
		} else {
			for _, o := range objectsOf(mysql) {
				if o.kind != "VIEW" && o.name != "claims" {
					db.mustExec(t, `DROP TABLE {`+o.name+`}`)
				}
			}
		}
		if err := Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Renew(bounded(t), m.key); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("the former holder is renewed: %v", err)
		}
		join(t, openEngine(t, url), "n", time.Minute).claim(exclusive(1, 0, "a"), lockkeeper.Held)
	})
}
