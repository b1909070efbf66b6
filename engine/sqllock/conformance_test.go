package sqllock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// room bounds how many tests of the suite run at once: their sessions live for
// a second only, whatever else the computer does.
var room = make(chan struct{}, 8)

// harness opens handles on one database, each of which is as another process.
func harness(fresh func(t *testing.T) string) enginetest.Harness {
	return enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			room <- struct{}{}
			t.Cleanup(func() { <-room })
			url := fresh(t)
			return func() lockkeeper.Engine {
				e, err := Open(context.Background(), url)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		},
	}
}

// schemasOf are new schemas in a database of Postgres, which are made faster than databases.
func schemasOf(url string) func(*testing.T) string {
	var number atomic.Uint64
	return func(*testing.T) string { return fmt.Sprintf("%s&schema=test_%d", url, number.Add(1)) }
}

func newPostgres(t *testing.T) string { return testdb.SharedPostgres(t).Database(t) }

func TestConformancePostgres(t *testing.T) { enginetest.Run(t, harness(schemasOf(newPostgres(t)))) }

func TestStressPostgres(t *testing.T) { enginetest.Stress(t, harness(newPostgres)) }

func newMariaDB(t *testing.T) string { return testdb.SharedMariaDB(t).Database(t) }

func TestConformanceMariaDB(t *testing.T) { enginetest.Run(t, harness(newMariaDB)) }

func TestStressMariaDB(t *testing.T) {
	testmode.NeedLong(t, "TestStressPostgres is as much load, and TestConformanceMariaDB the suite")
	enginetest.Stress(t, harness(newMariaDB))
}
