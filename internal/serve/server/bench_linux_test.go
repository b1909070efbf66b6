package server

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A script is a connection without a network: the server reads requests that are made as it asks for
// them, and its answers are dropped.
type script struct {
	net.Conn
	next    func(*wire.Outbox) bool // adds the next requests; false at the end
	out     wire.Outbox
	room    []byte
	pending []byte
	closed  chan struct{}
	written int // bytes
}

func (s *script) Read(to []byte) (int, error) {
	if len(s.pending) == 0 {
		if !s.next(&s.out) {
			close(s.closed)
			return 0, io.EOF
		}
		s.pending = s.out.Take(s.room)
		s.room = s.pending
	}
	n := copy(to, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.written += len(b)
	return len(b), nil
}

func (s *script) Close() error                        { return nil }
func (s *script) LocalAddr() net.Addr                 { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr                { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (s *script) SetDeadline(time.Time) error         { return nil }
func (s *script) SetReadDeadline(time.Time) error     { return nil }
func (s *script) SetWriteDeadline(at time.Time) error { return nil }

// One operation is a claim and its release at a server, in frames of 32 and by themselves, without
// the network.
func BenchmarkPair(b *testing.B) {
	for name, size := range map[string]int{"batch": 32, "single": 1} {
		b.Run(name, func(b *testing.B) {
			e := memlock.New()
			defer e.Close()
			s := New(e, Options{})
			defer s.Shutdown(b.Context())
			paths := make([]lockkeeper.Path, 16*size)
			for i := range paths {
				paths[i] = lockkeeper.Path("bench/worker-00001/path-" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
			}
			c := &script{closed: make(chan struct{})}
			c.next = pairs(b, size, paths)
			b.ReportAllocs()
			runtime.GC()
			began := processorTime(b)
			b.ResetTimer()
			s.accept(c)
			<-c.closed
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(c.written)/float64(b.N), "bytes/op")
		})
	}
}

// processorTime returns that of this process. Other processes change it little.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// pairs returns a function that claims paths, as many at once as size says, and then releases them.
func pairs(b *testing.B, size int, paths []lockkeeper.Path) func(*wire.Outbox) bool {
	step, done, call := 0, 0, uint64(1)
	id, first := uint64(0), uint64(0)
	return func(o *wire.Outbox) bool {
		step++
		switch {
		case step == 1:
			o.PutFrame(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
			return true
		case step == 2:
			m := &wire.Call{Number: call, Method: wire.MethodAttach}
			return o.PutAttach(m, &lockkeeper.Session{ID: "bench", TTL: time.Hour})
		case done >= b.N && step%2 == 1:
			return false
		}
		for i := range size {
			call++
			m := wire.Call{Number: call, Handle: wire.NewHandle(0, 1)}
			if id == 0 {
				m.Named, m.Key = true, lockkeeper.Key{Session: "bench", Epoch: 1}
			}
			if step%2 == 1 {
				if i == 0 {
					first = id + 1
				}
				id++
				m.Key.LowestOpen = first
				target := lockkeeper.Target{Path: paths[(done+i)%len(paths)], Mode: lockkeeper.ModeExclusive}
				o.PutClaim(&m, &lockkeeper.Want{
					ID:      id,
					Targets: []lockkeeper.Target{target},
					Wait:    lockkeeper.Forever,
				})
				continue
			}
			m.Key.LowestOpen = id + 1
			o.PutEnd(&m, &lockkeeper.Ending{Kind: lockkeeper.Release, ID: first + uint64(i)})
		}
		if step%2 == 0 {
			done += size
		}
		return true
	}
}
