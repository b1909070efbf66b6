package remote

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// A client that two of three servers refuse while the third is down learns of it, but only after a time in which
// servers that restart would have accepted it.
func TestLastingRefusalBesideADeadServer(t *testing.T) {
	denied := &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "no such token"}
	full := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.Quota}
	down := errors.New("connection refused")
	for name, between := range map[string]func(e *Engine) (lasts bool){
		"nothing":  func(e *Engine) bool { e.unreached([]error{denied, down, denied}); return true },
		"accepted": func(e *Engine) bool { e.nodes.connected("a", &lockkeeper.ClusterNodes{}); return false },
		"all down": func(e *Engine) bool { e.unreached([]error{down, down, down}); return false },
		"full":     func(e *Engine) bool { e.unreached([]error{denied, full, down}); return false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &Engine{life: ctx, nodes: *newNodes("e")}
				attempt := func() error { return e.unreached([]error{denied, down, denied}) }
				began := time.Now()
				if err := attempt(); !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrDenied) {
					t.Errorf("at first: %v", err)
				}
				time.Sleep(refusalTime / 2)
				lasts := between(e)
				time.Sleep(refusalTime/2 - 1)
				if err := attempt(); errors.Is(err, lockkeeper.ErrDenied) {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				time.Sleep(time.Nanosecond)
				if err := attempt(); errors.Is(err, lockkeeper.ErrDenied) != lasts {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				time.Sleep(refusalTime)
				if err := attempt(); !errors.Is(err, lockkeeper.ErrDenied) {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// No token helps at a server that admits nobody, so its denial asks for none.
func TestDenialOfAClosedServerAsksForNoToken(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := access.New(e, &access.Policy{Closed: "closed for a reason"}, access.Options{})
	s := server.New(e, server.Options{Gate: gate})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	_, err = Open(t.Context(), "lk://"+l.Addr().String())
	if !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), "closed for a reason") ||
		strings.Contains(err.Error(), "token") {
		t.Error(err)
	}
	if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
