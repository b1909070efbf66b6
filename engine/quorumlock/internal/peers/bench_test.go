package peers

import (
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// echoes returns a node with a connection to another one, which sends everything back.
func echoes(b *testing.B, receive func(replica.Message)) *node {
	a := newCA(b)
	var two *node
	ready := make(chan struct{})
	one := a.start(1, func(s *Settings, _ *bounds) { s.Receive = each(receive) })
	two = a.start(2, func(s *Settings, _ *bounds) {
		s.Receive = each(func(m replica.Message) {
			<-ready
			m.From, m.To = 2, 1
			two.Send(m)
		})
	})
	close(ready)
	one.connect(two)
	two.connect(one)
	return one
}

func small(number uint64) replica.Message {
	m := call(1, 2, number)
	m.Request = make([]byte, 100)
	return m
}

// BenchmarkRoundTrip is the time of a message and its answer between two nodes.
func BenchmarkRoundTrip(b *testing.B) {
	back := make(chan struct{}, 1)
	one := echoes(b, func(replica.Message) { back <- struct{}{} })
	b.ReportAllocs()
	for b.Loop() {
		one.Send(small(1))
		<-back
	}
}

// BenchmarkInFlight is the time for each of 128 messages that are on their way together.
func BenchmarkInFlight(b *testing.B) {
	back := make(chan struct{}, 128)
	one := echoes(b, func(replica.Message) { back <- struct{}{} })
	b.ReportAllocs()
	for range 128 {
		one.Send(small(1))
	}
	for b.Loop() {
		<-back
		one.Send(small(1))
	}
	for range 128 {
		<-back
	}
}

// BenchmarkHeartbeatBesideSnapshot is the round trip of a small message while snapshots of 50 MB
// follow each other on the same connection, and the throughput of the snapshots.
func BenchmarkHeartbeatBesideSnapshot(b *testing.B) {
	const size = 50 << 20
	a := newCA(b)
	back, arrived := make(chan struct{}, 1), make(chan struct{}, 1)
	one := a.start(1, func(s *Settings, _ *bounds) { s.Receive = each(func(replica.Message) { back <- struct{}{} }) })
	var mu sync.Mutex // until two is there
	mu.Lock()
	var two *node
	two = a.start(2, func(s *Settings, _ *bounds) {
		s.Receive = each(func(m replica.Message) {
			mu.Lock()
			defer mu.Unlock()
			if m.Kind == 0 {
				arrived <- struct{}{}
				return
			}
			m.From, m.To = 2, 1
			two.Send(m)
		})
	})
	mu.Unlock()
	one.connect(two)
	two.connect(one)
	m, snapshots := snapshot(1, 2, size), 0
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			one.Send(m)
			<-arrived
			snapshots++
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	began := time.Now()
	var slowest time.Duration
	for b.Loop() {
		sent := time.Now()
		one.Send(small(1))
		<-back
		slowest = max(slowest, time.Since(sent))
	}
	close(stop)
	sending.Wait()
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
	b.ReportMetric(float64(snapshots)*size/1e6/time.Since(began).Seconds(), "snapshot-MB/s")
}
