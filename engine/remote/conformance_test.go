package remote_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// serve starts a server of e for the time of the test, and returns its address.
func serve(t *testing.T, e lockkeeper.Engine) (*server.Server, string) {
	t.Helper()
	return serveWith(t, e, server.Options{})
}

// serveWith is serve with options.
func serveWith(t *testing.T, e lockkeeper.Engine, o server.Options) (*server.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(e, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, l.Addr().String()
}

// dial opens the engine at an address.
func dial(t *testing.T, address string) lockkeeper.Engine {
	e, err := remote.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// harness opens engines at a server of memlock.
var harness = enginetest.Harness{
	Fresh: func(t *testing.T) enginetest.Open {
		_, address := serve(t, memlock.New())
		return func() lockkeeper.Engine { return dial(t, address) }
	},
	Many: true,
}

func TestConformance(t *testing.T) {
	t.Parallel() // most of it is waiting
	enginetest.Run(t, harness)
}

func TestStress(t *testing.T) {
	t.Parallel()
	enginetest.Stress(t, harness)
}
