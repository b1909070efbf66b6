package remote_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
)

func wanting(id uint64, path string) *lockkeeper.Want {
	return &lockkeeper.Want{ID: id,
		Targets: []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}}}
}

// Each call of a batch has an answer of its own, in its own place.
func TestBatch(t *testing.T) {
	shared := memlock.New()
	_, address := serve(t, shared)
	key := many(t, shared, "other", 1) // holds path/0
	lease, err := shared.Attach(t.Context(), lockkeeper.Session{ID: "me", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := remote.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	calls := []remote.Call{
		{Key: lease.Key, Want: wanting(1, "path/0")}, // taken
		{Key: lease.Key, Want: wanting(2, "")},       // invalid
		{Key: lease.Key},                             // nothing
		{Key: lockkeeper.Key{Session: "me", Epoch: 999}, Want: wanting(3, "c")},
		{Key: key, Ending: &lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}},
		{Key: lease.Key, Ending: &lockkeeper.Ending{Kind: lockkeeper.Release, ID: 77}},
		{Key: lease.Key, Ending: &lockkeeper.Ending{Kind: 99}},
	}
	for i := range 500 {
		calls = append(calls, remote.Call{Key: lease.Key, Want: wanting(uint64(10+i), fmt.Sprint("x/", i))})
	}
	e.Batch(t.Context(), calls)
	for i, want := range []error{nil, lockkeeper.ErrInvalid, lockkeeper.ErrInvalid, lockkeeper.ErrSession, nil,
		lockkeeper.ErrNotHeld, lockkeeper.ErrInvalid} {
		if !errors.Is(calls[i].Err, want) {
			t.Errorf("call %d: %v, want %v", i, calls[i].Err, want)
		}
	}
	if calls[0].Status.State != lockkeeper.Ended || calls[0].Status.Reason != lockkeeper.TimedOut {
		t.Errorf("what was taken is answered by %v", calls[0].Status)
	}
	for i := 7; i < len(calls); i++ {
		if c := calls[i]; c.Err != nil || c.Status.State != lockkeeper.Held || c.Status.Ref.ID != uint64(3+i) {
			t.Fatalf("call %d: %v %v", i, c.Status, c.Err)
		}
	}
	e.Batch(t.Context(), nil)
}

// What was not answered when the caller's patience ended, or the connection, says so.
func TestBatchWithoutAnswers(t *testing.T) {
	for name, answer := range map[string]func(net.Conn, *bufio.Reader){
		"silent": func(nc net.Conn, in *bufio.Reader) {
			if welcomed(nc, in) == nil {
				request(in)
			}
		},
		"cut": func(nc net.Conn, in *bufio.Reader) {
			if welcomed(nc, in) == nil {
				request(in)
				nc.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := remote.Open(t.Context(), pretend(t, answer))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			calls := []remote.Call{{Want: wanting(1, "a")}, {Want: wanting(2, "b")}, {}}
			e.Batch(ctx, calls)
			for i, want := range []error{lockkeeper.ErrUnavailable, lockkeeper.ErrUnavailable, lockkeeper.ErrInvalid} {
				if !errors.Is(calls[i].Err, want) {
					t.Errorf("call %d: %v, want %v", i, calls[i].Err, want)
				}
			}
		})
	}
}
