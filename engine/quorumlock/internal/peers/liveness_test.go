package peers

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// pair returns two nodes on a network, the first of which has a connection to the second.
func pair(t *testing.T) (*pipes, *node, *node) {
	p := newPipes(t)
	one, two := p.node(1, nil), p.node(2, nil)
	p.listen(one, "one")
	p.listen(two, "two")
	one.connect(two)
	return p, one, two
}

func TestSilentPeerIsDisconnectedInTime(t *testing.T) {
	for name, cut := range map[string]func(*link){
		"messages are lost":   func(l *link) { l.discard.Store(true) },
		"keepalives are lost": func(l *link) { l.other.discard.Store(true) },
		"both are lost":       func(l *link) { l.discard.Store(true); l.other.discard.Store(true) },
	} { // order does not matter: each by itself
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, one, two := pair(t)
				time.Sleep(10*time.Second + 100*time.Millisecond)
				cut(p.links[0])
				cutAt := time.Now()
				one.log.wait(t, "not connected to a peer")
				two.log.wait(t, "the connection of a peer has ended")
				if took := time.Since(cutAt); took > DefaultSilence || took < DefaultSilence*(keepalives-2)/keepalives {
					t.Errorf("noticed after %s", took)
				}
				if !strings.Contains(one.log.String()+two.log.String(), "nothing was received for 3s") {
					t.Errorf("logs:\n%s\n%s", one.log, two.log)
				}
			})
		})
	}
}

func TestIdleConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one, two := pair(t)
		before := one.status(2)
		time.Sleep(time.Hour)
		one.Send(call(1, 2, 1))
		two.next()
		if after := one.status(2); !after.Since.Equal(before.Since) || p.dials.Load() != 1 {
			t.Errorf("status %+v, before %+v; %d connections", after, before, p.dials.Load())
		}
	})
}

func TestPausesGrowUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		one := p.node(1, nil)
		one.Set(2, "two")
		time.Sleep(time.Minute)
		// 1 attempt and 6 growing pauses in the first 3.2 s at most; then pauses from 1 s to 2 s.
		if n := p.dials.Load(); n < 1+6+56/2 || n > 1+6+60 {
			t.Errorf("%d attempts in a minute", n)
		}
		if got := strings.Count(one.log.String(), "not connected to a peer"); got != 1 {
			t.Errorf("one error is logged %d times", got)
		}
	})
}

func TestConnectionFromThePeerEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		one, two := p.node(1, nil), p.node(2, nil)
		p.listen(one, "one")
		one.Set(2, "two")
		time.Sleep(time.Minute)
		synctest.Wait()
		p.listen(two, "two")
		began := time.Now()
		two.connect(one)
		one.log.wait(t, connected, "node=0000000000000002", "address=two")
		if took := time.Since(began); took > 0 {
			t.Errorf("connected after %s", took)
		}
	})
}

func TestBrokenConnectionIsMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one, two := pair(t)
		time.Sleep(DefaultSilence)
		one.log.clear()
		brokenAt := time.Now()
		p.links[0].Close()
		one.log.wait(t, connected)
		if took := time.Since(brokenAt); took > 0 {
			t.Errorf("connected after %s", took)
		}
		one.Send(call(1, 2, 1))
		two.next()
	})
}

func TestMessagesAreDroppedWhileThereIsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		one := p.node(1, nil)
		one.Set(2, "two")
		synctest.Wait()
		for i := range uint64(100) {
			one.Send(call(1, 2, i))
		}
		if s := one.status(2); s.Waiting != 0 || s.Dropped != 100 || one.queued.used.Load() != 0 {
			t.Errorf("status: %+v", s)
		}
	})
}

func TestHeartbeatsAreNotDelayedBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one, two := pair(t)
		const rate, size = 1 << 20, 10 << 20
		p.links[0].rate.Store(rate)
		one.Send(snapshot(1, 2, size))
		began := time.Now()
		var slowest time.Duration
		for term := uint64(1); ; term++ {
			sent := time.Now()
			one.Send(heartbeat(1, 2, term))
			m := two.next()
			if m.Raft.GetSnapshot() != nil {
				if !bytes.Equal(m.Raft.GetSnapshot().GetData(), snapshot(1, 2, size).Raft.GetSnapshot().GetData()) {
					t.Error("the snapshot arrives damaged")
				}
				break
			}
			slowest = max(slowest, time.Since(sent))
			time.Sleep(13 * time.Millisecond)
		}
		// The piece on its way, and the one in the write of the heartbeat.
		if most := time.Second * 2 * (pieceSize + 1<<10) / rate; slowest > most {
			t.Errorf("a heartbeat takes %s, want at most %s", slowest, most)
		}
		t.Logf("the snapshot takes %s, a heartbeat at most %s", time.Since(began), slowest)
	})
}

func TestHandshakeHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		two := p.node(2, nil)
		p.listen(two, "two")
		c, err := p.dial(t.Context(), "two")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it sends something before the handshake")
		}
		if took := time.Since(began); took != two.bounds.handshake {
			t.Errorf("closed after %s", took)
		}
		c.Close()
	})
}

func TestUnauthenticatedConnectionsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		one := p.node(1, nil)
		two := p.node(2, func(_ *Settings, b *bounds) { b.arrivals = 4 })
		p.listen(two, "two")
		for range 4 {
			c, err := p.dial(t.Context(), "two")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		began := time.Now()
		one.connect(two)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("connected after %s", took)
		}
	})
}

func TestPeerThatDoesNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		one := p.node(1, func(_ *Settings, b *bounds) { b.messages, b.bytes, b.bytesInAll = 1000, 500_000, 800_000 })
		reads := make(chan struct{})
		read := sync.OnceFunc(func() { close(reads) })
		for id, name := range map[uint64]string{2: "two", 3: "three"} { // order does not matter
			n := p.node(id, nil)
			receive := n.settings.Receive
			n.settings.Receive = func(m []replica.Message) { <-reads; receive(m) }
			p.listen(n, name)
			one.connect(n)
		}
		t.Cleanup(read)
		for i := range uint64(5000) {
			one.Send(call(1, 2, 50*i)) // none or 10,000 bytes
			one.Send(call(1, 3, 7))
			if i < 10 {
				synctest.Wait() // until the writes are stuck
			}
			two, three := one.status(2), one.status(3)
			if two.Waiting > 1000 || two.WaitingBytes > 500_000 || three.Waiting > 1000 ||
				two.WaitingBytes+three.WaitingBytes > 800_000 {
				t.Fatalf("too much waits: %+v, %+v", two, three)
			}
		}
		three := one.status(3)
		if three.Waiting != 1000 || three.Dropped == 0 {
			t.Errorf("status of node 3: %+v", three)
		}
		one.Send(snapshot(1, 2, 1000))
		one.Send(snapshot(1, 2, 1000)) // the second one has no room
		if used := one.largeSends.used.Load(); used == 0 || used > 2000 {
			t.Errorf("%d bytes of large messages", used)
		}
		began := time.Now()
		one.log.clear()
		one.log.wait(t, "not connected to a peer", "node=0000000000000002")
		if took := time.Since(began); took > writeTime*DefaultSilence {
			t.Errorf("a peer that does not read is disconnected after %s", took)
		}
		read()
		one.Close()
		if one.queued.used.Load() != 0 || one.largeSends.used.Load() != 0 {
			t.Error("what was dropped still counts")
		}
	})
}

func TestRefusalsAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newJournal()
		r := refusals{log: slog.New(slog.NewTextHandler(log, nil))}
		for range 3 {
			for range 1000 {
				r.add("somewhere", 0, errSuperseded)
			}
			time.Sleep(time.Second)
		}
		if r.count.Load() != 3000 || strings.Count(log.String(), "is refused") != 3 ||
			strings.Count(log.String(), "unlogged_before=999") != 2 {
			t.Errorf("%d refusals; log:\n%s", r.count.Load(), log)
		}
	})
}

// A removed node that goes on dialling is logged once a minute.
func TestRefusalOfOneNodeIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newJournal()
		r := refusals{log: slog.New(slog.NewTextHandler(log, nil))}
		for range 119 {
			r.add("somewhere", 3, errSuperseded)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "is refused"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, log)
		}
		r.add("somewhere", 3, errors.New("another reason"))
		if !strings.Contains(log.String(), "another reason") {
			t.Error("another reason is not logged")
		}
	})
}
