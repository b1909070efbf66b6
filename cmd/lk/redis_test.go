package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The sessions in testdata/redis are those of Redis servers; those in its folder three need three.
func TestSessionsOverRedis(t *testing.T) {
	for n, folders := range map[int][]string{
		1: {"testdata/redis"},
		3: {"testdata/redis", "testdata/redis/three"},
	} {
		for _, folder := range folders {
			t.Run(fmt.Sprint(n, " servers, ", folder), func(t *testing.T) {
				runSessions(t, folder, "redis", func(env *testscript.Env) error {
					var addresses []string
					for i := range n {
						s := testdb.Redis(t)
						_, port, err := net.SplitHostPort(s.Addr())
						if err != nil {
							return err
						}
						env.Setenv(fmt.Sprint("PORT", i+1), port)
						addresses = append(addresses, s.Addr())
					}
					env.Setenv(engineVariable, "redis://"+strings.Join(addresses, ","))
					return nil
				})
			})
		}
	}
}
