package testdb_test

import (
	"database/sql"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// Behind PgBouncer, many open transactions would need as many connections; there are
// four, and what a session sets may be found by another.
func TestPgBouncerPoolsTransactions(t *testing.T) {
	pooler := testdb.PgBouncer(t, testdb.SharedPostgres(t))
	url := pooler.Database(t)
	// The simple protocol, since statements that a connection has prepared are
	// not there on the next.
	db := connect(t, url+"&default_query_exec_mode=simple_protocol")
	backends := map[string]bool{}
	var open []*sql.Tx
	for range 4 {
		tx, err := db.BeginTx(bounded(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tx)
		var pid string
		if err := tx.QueryRowContext(bounded(t), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		backends[pid] = true
	}
	if len(backends) != 4 {
		t.Errorf("4 open transactions on %d connections", len(backends))
	}
	fifth, ctx := make(chan string, 1), bounded(t)
	go func() {
		var pid string
		err := db.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
		if err != nil {
			t.Error(err)
		}
		fifth <- pid
	}()
	if err := open[0].Commit(); err != nil { // the fifth waits for one of the four
		t.Fatal(err)
	}
	if pid := <-fifth; !backends[pid] {
		t.Errorf("backend %s is a fifth, beside %v", pid, backends)
	}
	for _, tx := range open[1:] {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if err := pooler.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := pooler.Start(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, connect(t, url+"&default_query_exec_mode=simple_protocol"), "SELECT 'back'"); got != "back" {
		t.Errorf("got %q", got)
	}
}
