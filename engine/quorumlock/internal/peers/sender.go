package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// sendBuffer is the number of bytes that the kernel may keep for a connection; Linux doubles it. All of
// them go before a heartbeat.
const sendBuffer = 256 << 10

// A sender keeps a connection to a peer, at the address that the Transport knows. When that fails, it
// tries the address that the peer has stated, and so by turns:
//
//	         ┌── lasted for Silence, and ended ──┐
//	         v                                   │
//	connecting ── handshake done ───────────> connected
//	  ^      │                                   │ ended before that
//	  │      └── failed ─────> pausing <─────────┘
//	  └─ pause over, retry ───────┘
//
// The queue is open while the sender is connecting or connected.
type sender struct {
	transport *Transport
	peer      *peer
	address   string // by which the Transport knows the peer
	at        string // of the present attempt; used by run alone
	life      context.Context
	stop      context.CancelFunc
	queue     queue
	reach     reach
	retry     chan struct{} // ends a pause
	conn      atomic.Pointer[connection]
	rest      []byte // of the large message being sent; used by the goroutine that writes
}

func newSender(t *Transport, p *peer, address string) *sender {
	s := &sender{transport: t, peer: p, address: address, at: address, retry: make(chan struct{}, 1)}
	s.queue.transport, s.reach.since = t, time.Now()
	s.life, s.stop = context.WithCancel(t.life)
	s.queue.begin()
	return s
}

// send queues a message, or drops it.
func (s *sender) send(m replica.Message) {
	if s.queue.put(m) {
		if c := s.conn.Load(); c != nil {
			c.Signal()
		}
		return
	}
	if size, most := sizeOf(&m), s.transport.bounds.large; size > most {
		s.drop(fmt.Errorf("a message of %d bytes can't be sent, at most %d are allowed", size, most))
		return
	}
	s.peer.dropped.Add(1)
}

// tryNow ends a pause.
func (s *sender) tryNow() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}

func (s *sender) run() {
	defer s.stop()
	var pauses backoff
	for first := true; s.life.Err() == nil; first = false {
		if !first {
			s.at = s.nextAddress()
		}
		s.queue.begin()
		select {
		case <-s.retry: // of before this attempt
		default:
		}
		lasted, err := s.attempt()
		s.peer.dropped.Add(uint64(s.queue.end()))
		if s.life.Err() != nil {
			return
		}
		if s.reach.down(err) {
			s.transport.settings.Log.Warn("not connected to a peer", "node", formatID(s.peer.id), "address", s.at,
				"error", err)
		}
		if lasted >= s.transport.settings.Silence {
			pauses = backoff{}
			continue
		}
		timer := time.NewTimer(pauses.next())
		select {
		case <-timer.C:
		case <-s.retry:
		case <-s.life.Done():
		}
		timer.Stop()
	}
}

// nextAddress returns where to try next.
func (s *sender) nextAddress() string {
	s.transport.mu.RLock()
	defer s.transport.mu.RUnlock()
	if s.at == s.address && s.peer.stated != "" {
		return s.peer.stated
	}
	return s.address
}

// attempt connects, and uses the connection until it ends.
func (s *sender) attempt() (lasted time.Duration, err error) {
	stream, err := s.connect()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	s.rest = nil
	c := newConnection(stream, s.transport.settings.Silence, s.fill)
	s.conn.Store(c)
	if err := s.transport.settings.allow(stream.leaf); err != nil { // since the handshake
		c.Fail(err)
	}
	s.reach.up()
	s.transport.settings.Log.Info("connected to a peer", "node", formatID(s.peer.id), "address", s.at)
	err = c.run(s.life, func() error {
		return stream.frames(0, func([]byte) error { return nil }, func() {}) // keepalives
	})
	s.conn.Store(nil)
	return time.Since(began), err
}

// connect makes a connection up to the end of the handshake.
func (s *sender) connect() (*stream, error) {
	t := s.transport
	ctx, cancel := context.WithTimeout(s.life, t.bounds.handshake)
	defer cancel()
	raw, err := t.dial(ctx, s.at)
	if err != nil {
		return nil, err
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // only heartbeats behind a snapshot would be later
	}
	defer context.AfterFunc(s.life, func() { raw.Close() })()
	stream, err := s.shakeHands(raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return stream, nil
}

func (s *sender) shakeHands(raw net.Conn) (*stream, error) {
	t := s.transport
	if err := raw.SetDeadline(time.Now().Add(t.bounds.handshake)); err != nil {
		return nil, err
	}
	stream, err := t.secure(raw, caller)
	if err != nil {
		return nil, err
	}
	if stream.id != s.peer.id {
		return nil, fmt.Errorf("at %s is node %016x, and not node %016x", s.at, stream.id, s.peer.id)
	}
	if err := t.settings.allow(stream.leaf); err != nil {
		return nil, err
	}
	return stream, t.offer(stream)
}

// fill adds to a write: messages, then one piece of the large message.
func (s *sender) fill(out *wire.Outbox) {
	batch := s.queue.take(maxWrite)
	for i := range batch {
		b, err := batch[i].MarshalBinary()
		if err != nil {
			s.drop(err)
			continue
		}
		out.PutFrame(newFrame(frameMessage, b, batch[i].To))
		s.peer.sent.Add(1)
		s.peer.sentBytes.Add(uint64(len(b)))
	}
	clear(batch)
	s.fillPiece(out)
}

func (s *sender) fillPiece(out *wire.Outbox) {
	if len(s.rest) == 0 {
		large := s.queue.start()
		if large == nil {
			return
		}
		b, err := large.MarshalBinary()
		if err != nil {
			s.queue.finish()
			s.drop(err)
			return
		}
		s.rest = b
		out.PutFrame(newFrame(frameLarge, nil, large.To, uint64(len(b))))
	}
	piece := s.rest[:min(len(s.rest), pieceSize)]
	out.PutFrame(newFrame(framePiece, piece))
	s.rest = s.rest[len(piece):]
	s.peer.sentBytes.Add(uint64(len(piece)))
	if len(s.rest) == 0 {
		s.rest = nil
		s.queue.finish()
		s.peer.sent.Add(1)
	}
}

// drop counts a message that can never be sent, and states why.
func (s *sender) drop(err error) {
	s.peer.dropped.Add(1)
	s.reach.mu.Lock()
	news := s.reach.note(err)
	s.reach.mu.Unlock()
	if news {
		s.transport.settings.Log.Error("a message for a peer can't be sent", "node", formatID(s.peer.id), "error", err)
	}
}

// The pauses between attempts.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// A backoff has pauses that grow: the n-th is between a half and the whole of
//
//	min(firstPause * 2^(n-1), mostPause)
//
// The zero backoff begins with the first.
type backoff struct{ limit time.Duration }

func (b *backoff) next() time.Duration {
	b.limit = min(max(2*b.limit, firstPause), mostPause)
	return b.limit/2 + rand.N(b.limit/2)
}
