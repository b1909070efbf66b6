package sqllock_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
)

func query(context.Context, string) error { return nil }

// At most three queries per router at a time, whatever host they come from.
func Example() {
	threeAtATime := func(ctx context.Context, client *lockkeeper.Client) error {
		hold, err := client.Acquire(ctx, lockkeeper.Permits("router1/snmp", 1, 3))
		if err != nil {
			return err // errors.Is tells taken (ErrNotAcquired) from unreachable (ErrUnavailable)
		}
		defer hold.Close()
		return query(hold.Context(), "router1") // its context ends, with the reason, if the permit is lost
	}
	ctx := context.Background()
	engine, err := lockkeeper.Open(ctx, "postgres://db.example.com/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := lockkeeper.New(engine)
	defer client.Close()
	fmt.Println(threeAtATime(ctx, client))
}

// The locks are in the database of an application, by the pool that it has.
func ExampleNew() {
	use := func(ctx context.Context) error {
		pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/app")
		if err != nil {
			return err
		}
		defer pool.Close()
		locks, err := sqllock.New(ctx, stdlib.OpenDBFromPool(pool))
		if err != nil {
			return err
		}
		client := lockkeeper.New(locks)
		defer client.Close()
		return client.Do(ctx, "router1/config", func(ctx context.Context) error { return query(ctx, "router1") })
	}
	fmt.Println(use(context.Background()))
}
