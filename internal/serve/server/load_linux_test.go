package server_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rawwire"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// files returns how many connections this process, and a server, may have open.
func files(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(limit.Cur) - 200
}

// opened returns a client with a session.
func opened(t *testing.T, address, session string) *rawwire.Locker {
	t.Helper()
	l, err := rawwire.Open(address, "", session, session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// raws returns n connections.
func raws(t *testing.T, address string, n int) []*rawwire.Conn {
	t.Helper()
	all := make([]*rawwire.Conn, n)
	for i := range all {
		r, err := rawwire.Dial(address, "")
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { r.Close() })
		all[i] = r
	}
	return all
}

const hotPaths = 100

// claimBytes bounds the server's memory for one claim, with its share of the session and of the
// connection's buffers. A claim uses about half of it. It uses more under the race detector, and
// before the garbage collector runs.
const claimBytes = 4000

// Ten thousand sessions hold, and a hundred thousand claims wait, over a few connections or over one for
// each session. Memory stays in proportion, and the next waiter gets its grant at once.
func TestManySessions(t *testing.T) {
	sessions := testmode.Pick(1_000, 10_000)
	for name, connections := range map[string]int{"over 4 connections": 4,
		"over one connection each": min(sessions, files(t))} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "127.0.0.1:0", "mem", "")
			before := s.memory()
			holder := opened(t, s.address, "holder")
			for i := range hotPaths {
				holder.Put(rawwire.Claim("holder", holder.Epoch, uint64(i+1), fmt.Sprint("hot/", i), 0))
			}
			if _, err := holder.All(hotPaths); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			all := raws(t, s.address, connections)
			connected := s.memory()
			fill(t, all, sessions)
			took, full := time.Since(began), s.memory()
			claims := 11 * sessions
			t.Logf("%d sessions and %d claims over %d connections in %s; empty: %s; connected: %s; full: %s; %d B a "+
				"connection, %d B a claim", sessions, claims, connections, took.Round(time.Millisecond),
				before, connected, full, (connected.live-before.live)/uint64(connections),
				(full.live-connected.live)/uint64(claims))
			if per := (full.live - connected.live) / uint64(claims); per > claimBytes {
				t.Errorf("a claim takes %d bytes, want at most %d", per, claimBytes)
			}
			if per := (connected.live - before.live) / uint64(connections); connections > 100 && per > 64<<10 {
				t.Errorf("a connection takes %d bytes, want at most 64 KiB", per)
			}
			next(t, holder, all)
		})
	}
}

// fill attaches sessions over connections, each of which holds one claim and waits
// with ten others.
func fill(t *testing.T, all []*rawwire.Conn, sessions int) {
	t.Helper()
	var running sync.WaitGroup
	const width = 4
	for w := range width {
		running.Go(func() {
			for i := w; i < len(all); i += width {
				if err := fillOne(all[i], i, len(all), sessions); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	running.Wait()
}

func fillOne(r *rawwire.Conn, first, step, sessions int) error {
	const batch = 100
	for from := first; from < sessions; from += batch * step {
		to := min(from+batch*step, sessions)
		n := 0
		for i := from; i < to; i += step {
			r.Put(rawwire.Attach(fmt.Sprint("s", i), 10*time.Minute))
			n++
		}
		leases, err := r.All(n)
		if err != nil {
			return err
		}
		epochs := make(map[uint64]uint64)
		for _, m := range leases {
			epochs[m.GetCall()] = m.GetLease().GetEpoch()
		}
		id := r.Number - uint64(n)
		for i := from; i < to; i += step {
			id++
			session, epoch := fmt.Sprint("s", i), epochs[id]
			r.Put(rawwire.Claim(session, epoch, 1, "own/"+session, 0))
			for k := range uint64(10) {
				r.Put(rawwire.Claim(session, epoch, 2+k, fmt.Sprint("hot/", (i*10+int(k))%hotPaths), lockkeeper.Forever))
			}
		}
		statuses, err := r.All(11 * n)
		if err != nil {
			return err
		}
		held := 0
		for _, m := range statuses {
			if m.GetStatus().GetState() == wire.State_STATE_HELD {
				held++
			}
		}
		if held != n {
			return fmt.Errorf("%d of %d claims are held at once, want %d", held, 11*n, n)
		}
	}
	return nil
}

// next releases a hot path and waits for the hint of the next grant.
func next(t *testing.T, holder *rawwire.Locker, all []*rawwire.Conn) {
	t.Helper()
	granted := make(chan time.Time, len(all))
	for _, r := range all {
		_ = r.SetDeadline(time.Now().Add(patience))
		go func() {
			for {
				f, err := r.Frame()
				if err != nil {
					return
				}
				for _, s := range f.GetChanged() {
					if s.GetState() == wire.State_STATE_HELD {
						granted <- time.Now()
						return
					}
				}
			}
		}()
	}
	began := time.Now()
	if _, err := holder.One(rawwire.Release("holder", holder.Epoch, 1)); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-granted:
		t.Logf("the next in line was granted %s after the release was sent", at.Sub(began))
	case <-time.After(patience):
		t.Error("no waiter is granted after the release")
	}
}
