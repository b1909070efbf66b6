package redlock

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// prefixes makes sets that share no keys on the same servers.
var prefixes atomic.Int64

// overRedis opens engines on n real servers, each test with keys of its own.
func overRedis(t *testing.T, n int) enginetest.Harness {
	var servers []*testdb.Server
	for range n {
		servers = append(servers, testdb.Redis(t))
	}
	return enginetest.Harness{
		Many: true,
		Skip: skipped,
		Fresh: func(t *testing.T) enginetest.Open {
			url := fmt.Sprintf("%s?prefix=t%d:", urlOf(servers...), prefixes.Add(1))
			return func() lockkeeper.Engine {
				e, err := lockkeeper.Open(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		},
	}
}

func TestConformanceOverRedis(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) { enginetest.Run(t, overRedis(t, n)) })
	}
}
