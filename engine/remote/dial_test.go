package remote_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A caller that waits for a connection learns at once that the engine was closed, and no other address
// is tried.
func TestCloseWhileConnecting(t *testing.T) {
	_, address := serve(t, memlock.New())
	p := behind(t, address, 1, badnet.Schedule{})
	p.Heal()
	e := dial(t, p.Addr()+","+p.Addr())
	p.Set(badnet.Profile{Down: badnet.Direction{Discard: true}})
	silent := p.Counts().Discarded.Load()
	p.Cut(true)
	welcomed := func() bool { return p.Counts().Discarded.Load() > silent }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var err error
		for !welcomed() && ctx.Err() == nil { // it may first get the error of the cut connection
			_, err = e.Renew(ctx, lockkeeper.Key{Session: "s", Epoch: 1})
		}
		ended <- err
	}()
	for !welcomed() && ctx.Err() == nil {
		runtime.Gosched()
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), "the engine is closed") {
		t.Errorf("closed meanwhile: %v", err)
	}
}

// A connection that comes after its caller has given up is not kept.
func TestAbandonedOpenKeepsNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan net.Conn, 1)
	go func() {
		defer cancel()
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		came <- c
	}()
	if _, err := remote.Open(ctx, l.Addr().String()); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Fatal(err)
	}
	c := <-came
	defer c.Close()
	_ = wire.WriteFrame(c,
		&wire.ServerFrame{Welcome: &wire.Welcome{Protocol: wire.Protocol, Guarantees: new(wire.Guarantees)}})
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for err == nil {
		_, err = c.Read(make([]byte, 100))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}
