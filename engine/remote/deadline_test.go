package remote_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// A server that reads and never answers lets each call end at its own deadline, in any order, or with
// the life of its client. Each ends by itself, because all deadlines are shorter than farAway.
func TestCallsEndAtTheirDeadlines(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		for err := welcomed(nc, in); err == nil; _, err = request(in) {
		}
	})
	e := dial(t, address)
	defer e.Close()
	life, stop := context.WithCancel(t.Context())
	release := func(ctx context.Context) error {
		return e.End(ctx, lockkeeper.Key{Session: "k3v9", Epoch: 5}, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
	}
	alive := make(chan error, 1)
	go func() {
		ctx := roundtrip.New(context.Background(), life, time.Now().Add(time.Hour), nil)
		defer ctx.End()
		alive <- release(ctx)
	}()
	const many = 20
	ended := make(chan error, many)
	for i := range many {
		go func() {
			due := time.Duration(i*7%many) * 10 * time.Millisecond
			ctx := roundtrip.New(t.Context(), life, time.Now().Add(due), nil)
			defer ctx.End()
			ended <- release(ctx)
		}()
	}
	for range many {
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a call without an answer: %v", err)
		}
	}
	select {
	case err := <-alive:
		t.Fatalf("a call that is not due: %v", err)
	default:
	}
	stop()
	if err := <-alive; !errors.Is(err, context.Canceled) || !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a call of a client that is closed: %v", err)
	}
}
