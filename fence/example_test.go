package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/fence"
)

// Two holders, of which the first was stopped and does not know that it lost its lock.
func grants(ctx context.Context, path string) (early, late uint64, err error) {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	for _, number := range []*uint64{&early, &late} {
		hold, err := client.Lock(ctx, path)
		if err != nil {
			return 0, 0, err
		}
		*number = hold.Fence()
		if err := hold.Release(ctx); err != nil {
			return 0, 0, err
		}
	}
	return early, late, nil
}

// A holder writes in a transaction whose first statement checks its fence.
func ExampleDialect_Check() {
	if err := writeBackups(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the next holder writes: <nil>
	// the former holder writes: stale: true
}

func writeBackups(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE backups (router TEXT PRIMARY KEY, config TEXT)"); err != nil {
		return err
	}
	if err := fence.SQLite.Create(ctx, db); err != nil {
		return err
	}

	save := func(ctx context.Context, number uint64, config string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.SQLite.Check(ctx, tx, "router1/config", number); err != nil {
			return err
		}
		const write = "INSERT OR REPLACE INTO backups VALUES ('router1', ?)"
		if _, err := tx.ExecContext(ctx, write, config); err != nil {
			return err
		}
		return tx.Commit()
	}

	early, late, err := grants(ctx, "router1/config")
	if err != nil {
		return err
	}
	fmt.Println("the next holder writes:", save(ctx, late, "new"))
	err = save(ctx, early, "old")
	fmt.Println("the former holder writes: stale:", errors.Is(err, fence.ErrStale))
	return nil
}

// A server refuses requests of holders that lost their lock.
func ExampleHandler() {
	ctx := context.Background()
	store := &fence.Memory{} // one for all handlers of a resource
	save := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, number, _ := fence.FromContext(r.Context())
		fmt.Println("saved under fence", number)
	})
	mux := http.NewServeMux()
	mux.Handle("PUT /config", fence.Handler(store, func(*http.Request) string { return "router1/config" }, save))
	server := httptest.NewServer(mux)
	defer server.Close()

	put := func(number uint64) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/config", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fence.SetHeader(req.Header, number) // hold.Fence()
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		answer.Body.Close()
		fmt.Println(answer.Status)
	}

	early, late, err := grants(ctx, "router1/config")
	if err != nil {
		fmt.Println(err)
		return
	}
	put(late)
	put(early) // the former holder, which does not know yet that it lost the lock
	// Output:
	// saved under fence 2
	// 200 OK
	// 412 Precondition Failed
}
