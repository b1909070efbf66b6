package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

const (
	keepalives = 6  // that a side sends within Settings.Silence
	writeTime  = 10 // times Settings.Silence is the bound of a write to a peer that lives but does not read
)

// A stream is one TLS connection. Its Close never waits.
type stream struct {
	*tls.Conn
	raw     net.Conn
	id      uint64            // of the peer
	leaf    *x509.Certificate // of the peer
	in      *bufio.Reader     // reads from the stream
	silence time.Duration     // bounds each Read; 0 during the handshake, which has a deadline of its own
}

func newStream(secure *tls.Conn, raw net.Conn, id uint64) *stream {
	s := &stream{Conn: secure, raw: raw, id: id, leaf: secure.ConnectionState().PeerCertificates[0]}
	s.in = bufio.NewReaderSize(s, 64<<10)
	return s
}

// Close closes the connection. It sends no alert, which could wait for the peer.
func (s *stream) Close() error { return s.raw.Close() }

// Read reads what has arrived. It fails if nothing arrives for s.silence.
func (s *stream) Read(b []byte) (int, error) {
	if s.silence > 0 {
		if err := s.SetReadDeadline(time.Now().Add(s.silence)); err != nil {
			return 0, err
		}
	}
	n, err := s.Conn.Read(b)
	if s.silence > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing was received for %s", s.silence)
	}
	return n, err
}

// frames reads frames of at most limit bytes and passes their bytes on, until an error. Nobody else
// uses the bytes. It calls pause before it waits for more.
func (s *stream) frames(limit int, handle func(b []byte) error, pause func()) error {
	for {
		if !s.another() {
			pause()
		}
		length, err := wire.ReadLength(s.in, limit)
		if err == io.EOF {
			return errors.New("the peer closed the connection")
		}
		if err != nil {
			return err
		}
		b, err := wire.ReadMessage(s.in, length, nil, nil)
		if err == nil {
			err = handle(b)
		}
		if err != nil {
			return err
		}
	}
}

// another reports whether the whole next frame has arrived.
func (s *stream) another() bool {
	head, _ := s.in.Peek(min(s.in.Buffered(), binary.MaxVarintLen32))
	length, n := binary.Uvarint(head)
	return n > 0 && uint64(s.in.Buffered()) >= uint64(n)+length
}

// A connection is a stream after its handshake.
type connection struct {
	*wire.Conn
	stream *stream
	failed chan struct{} // closed when the connection ends
}

// newConnection returns the connection of a stream on which nothing may be received for silence. fill
// adds to each write; it may be nil.
func newConnection(s *stream, silence time.Duration, fill func(*wire.Outbox)) *connection {
	s.silence = silence
	c := &connection{stream: s, failed: make(chan struct{})}
	options := wire.ConnOptions{
		WriteTime: writeTime * silence,
		Room:      func(int) bool { return true }, // queues have the bounds
		Failed:    func(error) { close(c.failed) },
	}
	if fill != nil {
		options.BeforeWrite = func() { fill(&c.Out) }
	}
	c.Conn = wire.NewConn(s, options)
	return c
}

// run uses the connection until it ends, and returns why it has ended. read reads until an error.
func (c *connection) run(life context.Context, read func() error) error {
	stop := context.AfterFunc(life, func() { c.Fail(errClosed) })
	defer stop()
	if err := c.stream.SetDeadline(time.Time{}); err != nil {
		c.Fail(err)
	}
	var writing sync.WaitGroup
	writing.Go(c.write)
	c.Fail(read())
	writing.Wait()
	c.Lock()
	defer c.Unlock()
	return c.Err()
}

// write writes what waits, and keepalives.
func (c *connection) write() {
	ticker := time.NewTicker(c.stream.silence / keepalives)
	defer ticker.Stop()
	for {
		c.Flush()
		select {
		case <-c.Wake():
		case <-ticker.C:
			c.Lock()
			c.Out.PutFrame(new(frame))
			c.End(false)
		case <-c.failed:
			return
		}
	}
}
