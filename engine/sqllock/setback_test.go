package sqllock

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// stored are the tables whose rows are locks.
var stored = []string{"sessions", "claims", "targets"}

// copyRows copies the rows of the database, as a copy that lags behind has them.
func copyRows(t *testing.T, db database) (counter int64) {
	t.Helper()
	for _, table := range stored {
		db.mustExec(t, fmt.Sprintf(`CREATE TABLE copy_of_%s AS SELECT * FROM {%[1]s}`, table))
	}
	text := `SELECT max(n) FROM {sequences}`
	if db.flavour == postgres {
		text = `SELECT last_value FROM {sequences}`
	}
	if err := db.pool.QueryRow(db.sql(text)).Scan(&counter); err != nil {
		t.Fatal(err)
	}
	return counter
}

// setBack makes the copy the database: later commits have not happened.
func setBack(t *testing.T, db database, counter int64) {
	t.Helper()
	for _, table := range stored {
		db.mustExec(t, `DELETE FROM {`+table+`}`, `INSERT INTO {`+table+`} SELECT * FROM copy_of_`+table)
	}
	if db.flavour == postgres {
		db.mustExec(t, fmt.Sprintf(`SELECT setval('{sequences}', %d)`, counter))
	} else {
		db.mustExec(t, `DELETE FROM {sequences}`, fmt.Sprintf(`ALTER TABLE {sequences} AUTO_INCREMENT = %d`, counter+1))
	}
}

// The database loses commits, as by a failover to a copy that lags behind: two sessions hold a path
// until the first one renews, and their fences are the same. After the counter was raised as the
// page says, fences rise again.
func TestDatabaseSetBack(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := opened(t, url)
		holder, next := join(t, openEngine(t, url), "holder", time.Minute), join(t, openEngine(t, url), "next", time.Minute)
		counter := copyRows(t, db)
		lost := holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		setBack(t, db, counter)
		if again := next.claim(exclusive(1, 0, "a"), lockkeeper.Held); again.Fence > lost.Fence {
			t.Errorf("fences %d, then %d: nothing was lost, so this test shows nothing", lost.Fence, again.Fence)
		}
		if _, err := holder.Renew(bounded(t), holder.key); err != nil {
			t.Errorf("the holder is renewed: %v", err)
		}
		if st := holder.await(1, lockkeeper.Ended); st.Reason != lockkeeper.Revoked {
			t.Errorf("the holder was told %s", st.Reason)
		}
		setBack(t, db, counter)
		raise := map[flavour]string{postgres: "SELECT setval", mysql: "INSERT INTO lockkeeper_sequences"}[db.flavour]
		db.mustExec(t, pageBlock(t, "sql", raise))
		if late := next.claim(exclusive(2, 0, "a"), lockkeeper.Held); late.Fence <= lost.Fence+1_000_000_000 {
			t.Errorf("the fence is %d after the counter was raised, and was %d", late.Fence, lost.Fence)
		}
	})
}

// A waiter was granted, and the commit of that is lost: its client learns it from its next lease, though the claim is
// still there.
func TestLostGrantOfAWaiter(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := opened(t, url)
		holder := join(t, openEngine(t, url), "holder", time.Minute)
		holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		client := lockkeeper.New(openEngine(t, url), lockkeeper.SessionTTL(3*time.Second))
		defer client.Close()
		granted := make(chan *lockkeeper.Hold, 1)
		go func() {
			h, err := client.Lock(bounded(t), "a")
			if err != nil {
				t.Error(err)
			}
			granted <- h
		}()
		waits := func(st lockkeeper.Status) bool { return st.State == lockkeeper.Waiting }
		for !slices.ContainsFunc(listed(t, holder.Engine, lockkeeper.Query{}), waits) {
			<-time.After(10 * time.Millisecond)
		}
		counter := copyRows(t, db)
		holder.release(1)
		h := <-granted
		if h == nil {
			return
		}
		setBack(t, db, counter)
		raise := map[flavour]string{postgres: "SELECT setval", mysql: "INSERT INTO lockkeeper_sequences"}[db.flavour]
		db.mustExec(t, pageBlock(t, "sql", raise))
		<-h.Done()
		if err := h.Err(); !errors.Is(err, lockkeeper.ErrLost) || !errors.Is(err, lockkeeper.Expired) {
			t.Errorf("the hold ended with %v", err)
		}
	})
}
