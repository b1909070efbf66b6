package neighbours

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/rawwire"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// again does something with one connection after the other, as many at a time as the attacker has, until
// the attack ends. An attempt that ends within the rate is followed by the next one.
func (a *attacker) again(dial func() (net.Conn, error), do func(c net.Conn, ready func())) {
	ready := a.counted()
	var running sync.WaitGroup
	for range a.conns {
		running.Go(func() {
			ready := sync.OnceFunc(ready)
			for a.pace(1) {
				c, err := dial()
				if err != nil {
					ready() // such as when all places are taken
					continue
				}
				ended := make(chan struct{})
				go func() {
					select {
					case <-a.stop:
						c.Close()
					case <-ended:
					}
				}()
				do(c, ready)
				close(ended)
				c.Close()
			}
		})
	}
	running.Wait()
}

// greeted dials and says hello.
func (a *attacker) greeted() (net.Conn, error) {
	c, err := rawwire.Dial(a.address, a.secret)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

func (a *attacker) plain() (net.Conn, error) { return dialPlain(a.address) }

func dialPlain(address string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// begins announces a frame, and sends so many bytes of it.
func begins(c net.Conn, length uint64, size int) {
	_, _ = c.Write(append(binary.AppendUvarint(nil, length), make([]byte, size)...))
}

// announcedFrames are as large as allowed, and nothing of them is sent.
func announcedFrames(a *attacker) {
	a.again(a.greeted, func(c net.Conn, ready func()) {
		begins(c, wire.MaxFrame, 0)
		ready()
		readUntilClosed(c)
	})
}

// stalledFrames are sent but for their last byte.
func stalledFrames(a *attacker) {
	a.again(a.greeted, func(c net.Conn, ready func()) {
		go begins(c, wire.MaxFrame, wire.MaxFrame-1)
		ready()
		readUntilClosed(c)
	})
}

// tinyRequests have four bytes each, and take much more room when they are decoded. They ask for
// nothing, and nobody reads the answers.
func tinyRequests(a *attacker) {
	const each = 4000
	var frame bytes.Buffer
	frame.Write(binary.AppendUvarint(nil, 4*each))
	for range each {
		frame.Write([]byte{2<<3 | 2, 2, 1 << 3, 1}) // a request with the number 1
	}
	ready := a.counted()
	a.each(func(_ int, c *rawwire.Conn) {
		ready := sync.OnceFunc(ready)
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for a.pace(each) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_, err := c.Write(frame.Bytes())
			ready()
			if err != nil { // the server does not read any more, or has hung up
				break
			}
		}
		<-a.stop
	})
}

// tooLargeFrames are announced only: the server says what is wrong, and hangs up.
func tooLargeFrames(a *attacker) {
	sizes := []uint64{wire.MaxFrame + 1, 1 << 31, 1 << 35, 1<<63 + 1}
	a.again(a.greeted, func(c net.Conn, ready func()) {
		begins(c, sizes[rand.IntN(len(sizes))], 1000)
		readUntilClosed(c)
		ready()
	})
}

// garbage is no message, or none that makes sense, with and without a greeting.
func garbage(a *attacker) {
	a.again(a.plain, func(c net.Conn, ready func()) {
		if rand.IntN(2) == 0 {
			hello := &wire.Hello{Protocol: wire.Protocol, Token: a.secret}
			_ = wire.WriteFrame(c, &wire.ClientFrame{Hello: hello})
		}
		text := make([]byte, 1+rand.IntN(4000))
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		if rand.IntN(3) == 0 { // a frame that is whole, at least
			text = append(binary.AppendUvarint(nil, uint64(len(text))), text...)
		}
		_, _ = c.Write(text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, bufio.NewReader(c))
		ready()
	})
}

// silent connections say nothing until the server has enough of them.
func silent(a *attacker) {
	a.again(a.plain, func(c net.Conn, ready func()) {
		ready()
		readUntilClosed(c)
	})
}

// churn is connections that attach a session and go at once.
func churn(a *attacker) {
	a.again(a.greeted, func(c net.Conn, ready func()) {
		// A session that another connection attached in the same moment is refused.
		_, _ = c.(*rawwire.Conn).One(rawwire.Attach(fmt.Sprint("c", rand.IntN(50)), time.Minute))
		ready()
	})
}

// floodHTTP keeps connections on which it asks what nobody needs credentials for.
func floodHTTP(a *attacker) {
	a.again(func() (net.Conn, error) { return dialPlain(a.web) }, func(c net.Conn, ready func()) {
		_, _ = io.Copy(c, bytes.NewBufferString("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		ready()
		readUntilClosed(c)
	})
}

// drip writes a byte at a time, otherwise it is a client like any other.
func drip(a *attacker) {
	ready := a.counted()
	a.each(func(n int, c *rawwire.Conn) {
		ready := sync.OnceFunc(ready)
		session := fmt.Sprint("slow", n)
		epoch, ok := a.attach(c, session)
		if !ok {
			return
		}
		for a.pace(1) {
			c.Put(rawwire.Renew(session, epoch))
			for _, b := range c.Take() {
				if _, err := c.Write([]byte{b}); err != nil {
					a.Error(err)
					return
				}
			}
			if _, err := c.All(1); err != nil {
				a.Error(err)
				return
			}
			ready()
		}
	})
}
