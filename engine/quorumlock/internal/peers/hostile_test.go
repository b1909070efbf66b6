package peers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
	"github.com/lockkeeper/lockkeeper/internal/testca"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A rawPeer has the certificate of a node, and says what a test wants.
type rawPeer struct {
	*tls.Conn
	t  testing.TB
	in *bufio.Reader
}

func (a *ca) raw(pair testca.Pair, address string) *rawPeer {
	a.t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{protocol}, Certificates: []tls.Certificate{cert},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(maxWait)); err != nil {
		a.t.Fatal(err)
	}
	return &rawPeer{c, a.t, bufio.NewReader(c)}
}

// offers shakes hands.
func (r *rawPeer) offers() {
	r.t.Helper()
	r.frame(magic + "\x01\x01")
	if got := r.read(); got != "\x01" {
		r.t.Fatalf("the answer is %q", got)
	}
}

// frame sends a frame.
func (r *rawPeer) frame(text string) {
	b := binary.AppendUvarint(nil, uint64(len(text)))
	_, _ = r.Write(append(b, text...)) // the other side may have closed
}

// read returns the next frame.
func (r *rawPeer) read() string {
	r.t.Helper()
	length, err := wire.ReadLength(r.in, maxFrame)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := wire.ReadMessage(r.in, length, nil, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func TestGarbageBeforeTheHandshakeIsRefused(t *testing.T) {
	a := newCA(t)
	two := a.start(2, nil)
	random := testmode.Rand(t)
	for i := range 50 {
		c, err := net.Dial("tcp", two.address)
		if err != nil {
			t.Fatal(err)
		}
		garbage := make([]byte, 1+random.IntN(2000))
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		if i%2 == 0 {
			copy(garbage, "\x16\x03\x01") // begins as TLS does
		}
		_, _ = c.Write(garbage)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // until it is closed
		c.Close()
	}
	one := a.start(1, nil)
	one.connect(two)
	one.Send(call(1, 2, 1))
	two.next()
	if got := two.RefusedConnections(); got != 50 {
		t.Errorf("%d connections are refused", got)
	}
}

func TestGarbageInPlaceOfAnOfferIsRefused(t *testing.T) {
	for _, offer := range []string{"", "l", "lk", "lk\x01", "LK\x01\x01", "lk\xff\xff", "GET / HTTP/1.1"} {
		a := newCA(t)
		two := a.start(2, nil)
		raw := a.raw(a.node("alpha", 1), two.address)
		raw.frame(offer)
		if got := raw.read(); !strings.HasPrefix(got, "\x00"+errFrame.Error()) {
			t.Errorf("the answer to %q is %q", offer, got)
		}
		two.log.wait(t, "a connection of a peer is refused", "node=0000000000000001")
		if len(two.Status()) != 0 {
			t.Errorf("after %q it has a peer: %+v", offer, two.Status())
		}
	}
	a := newCA(t)
	two := a.start(2, nil)
	raw := a.raw(a.node("alpha", 1), two.address)
	raw.frame(strings.Repeat("x", maxOffer+1))
	two.log.wait(t, "a connection of a peer is refused", "it announces 129 bytes, of at most 128")
}

func TestFramesThatBreakTheProtocolEndTheConnection(t *testing.T) {
	number := func(kind byte, numbers ...uint64) string {
		b := []byte{kind}
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return string(b)
	}
	a := newCA(t)
	two := a.start(2, nil)
	one := a.node("alpha", 1)
	for _, c := range []struct {
		words  string
		frames []string
	}{
		{"frames of kind 9 are unknown", []string{"\x09"}},
		{"a frame ends too early", []string{number(frameMessage)}},
		{"a frame ends too early", []string{number(frameMessage) + "\xff\xff"}},
		{"a message that can't be read", []string{number(frameMessage, 2)}},
		{"a message that can't be read", []string{number(frameMessage, 2) + "\x7f"}},
		{"a message that can't be read", []string{number(frameMessage, 2) + "\x00\xff\xff\xff"}},
		{"a piece of 3 bytes, while 0 are missing", []string{number(framePiece) + "abc"}},
		{"a piece of 0 bytes", []string{number(frameLarge, 2, 9), number(framePiece)}},
		{"a piece of 4 bytes, while 2 are missing", []string{
			number(frameLarge, 2, 5), number(framePiece) + "abc", number(framePiece) + "abcd"}},
		{"a large message begins within another one", []string{number(frameLarge, 2, 5), number(frameLarge, 2, 5)}},
		{"a large message of 0 bytes", []string{number(frameLarge, 2, 0)}},
		{"at most 268435456 are allowed", []string{number(frameLarge, 2, 1<<40)}},
		{"2 bytes follow the size", []string{number(frameLarge, 2, 5) + "xy"}},
		{"a message that can't be read", []string{number(frameLarge, 2, 2), number(framePiece) + "\x7f?"}},
		{"it announces 2097153 bytes", []string{strings.Repeat("x", maxFrame+1)}},
	} {
		raw := a.raw(one, two.address)
		raw.offers()
		for _, f := range c.frames {
			raw.frame(f)
		}
		two.log.wait(t, "the connection of a peer has ended", "node=0000000000000001", c.words)
		two.log.clear()
	}
	if two.largeReceived.used.Load() != 0 {
		t.Error("large messages that did not arrive still count")
	}
}

func TestMessageForAnotherNodeIsDroppedAndCounted(t *testing.T) {
	a := newCA(t)
	two := a.start(2, nil)
	raw := a.raw(a.node("alpha", 1), two.address)
	raw.offers()
	good, err := new(call(1, 2, 5)).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	raw.frame("\x01\x03" + string(good))
	raw.frame("\x02\x03\x04")
	raw.frame("\x03abcd")
	raw.frame("\x01\x02" + string(good))
	if m := two.next(); m.To != 2 || m.Call != 5 {
		t.Errorf("arrives %+v", m)
	}
	if s := two.status(1); s.Misaddressed != 2 || s.Received != 1 {
		t.Errorf("status: %+v", s)
	}
}

func TestNewerConnectionOfAPeerReplacesTheOlder(t *testing.T) {
	a := newCA(t)
	two := a.start(2, nil)
	one := a.node("alpha", 1)
	former := a.raw(one, two.address)
	former.offers()
	latter := a.raw(one, two.address)
	latter.offers()
	if _, err := io.Copy(io.Discard, former); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the older connection stays")
	}
	two.log.wait(t, "the connection of a peer has ended", errSuperseded.Error())
	good, _ := new(call(1, 2, 5)).MarshalBinary()
	latter.frame("\x01\x02" + string(good))
	two.next()
	if !two.status(1).Incoming {
		t.Error("the newer connection is forgotten")
	}
}

func TestPeersHaveABound(t *testing.T) {
	a := newCA(t)
	two := a.start(2, func(_ *Settings, b *bounds) { b.peers = 1 })
	a.raw(a.node("alpha", 1), two.address).offers()
	third := a.raw(a.node("alpha", 3), two.address)
	third.frame(magic + "\x01\x01")
	if got := third.read(); got != "\x00node 0000000000000002 has 1 other peers: it takes no more" {
		t.Errorf("the answer is %q", got)
	}
}

func TestLargeMessageWithoutRoomIsDropped(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	used := two.bounds.large - 1000
	two.largeReceived.take(used)
	one.Send(snapshot(1, 2, 100_000))
	for sent := false; !sent; {
		sent = one.largeSends.used.Load() == 0
		one.Send(heartbeat(1, 2, 3)) // arrives behind the pieces so far
		two.next()
	}
	two.largeReceived.release(used)
	one.Send(snapshot(1, 2, 100_000))
	for {
		if m := two.next(); m.Raft.GetSnapshot() != nil {
			break
		}
	}
	if s := two.status(1); s.Received != one.status(2).Sent-1 {
		t.Errorf("received %+v; sent %+v", s, one.status(2))
	}
}

func FuzzFrames(f *testing.F) {
	good, _ := new(call(1, 2, 5)).MarshalBinary()
	f.Add([]byte("\x02\x02\x04"), []byte("\x03\x01\x01"), []byte("\x03\x01\x01"))
	f.Add(append([]byte("\x01\x02"), good...), []byte(nil), []byte("\x00"))
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		tr := &Transport{bounds: bounds{large: 1000}, largeReceived: quota{most: 1000}}
		tr.settings.ID = 2
		tr.settings.Receive = each(func(m replica.Message) {
			if m.From != 1 || m.To != 2 {
				t.Errorf("from %d to %d", m.From, m.To)
			}
		})
		in := inbox{transport: tr, peer: &peer{id: 1}}
		for _, b := range [][]byte{first, second, third} {
			if in.add(bytes.Clone(b)) != nil {
				break
			}
			if used := tr.largeReceived.used.Load(); used < 0 || used > 1000 {
				t.Fatalf("%d bytes of large messages", used)
			}
		}
		in.pass()
		in.end()
		if tr.largeReceived.used.Load() != 0 {
			t.Error("a large message still counts")
		}
	})
}
