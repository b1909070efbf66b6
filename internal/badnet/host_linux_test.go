package badnet

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echoHost is a host with an echo at the far end of a cable.
func echoHost(t *testing.T) (c *Cable, address string) {
	t.Helper()
	h, err := NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if c, err = h.Cable(); err != nil {
		t.Fatal(err)
	}
	l, err := h.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 100)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					if _, err := conn.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return c, net.JoinHostPort(c.There, port)
}

// Packets are lost silently, in either direction, and are retransmitted when the loss ends.
func TestLostPackets(t *testing.T) {
	if !Alone(t) {
		return
	}
	cable, address := echoHost(t)
	conn, err := net.DialTimeout("tcp", address, maxWait)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	arrives := func(what string, want bool) {
		t.Helper()
		wait := maxWait
		if !want {
			wait = 50 * time.Millisecond
		}
		_ = conn.SetDeadline(time.Now().Add(wait))
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		if want && (err != nil || string(buffer[:n]) != what) {
			t.Fatalf("got %q, %v, want %q", buffer[:n], err, what)
		}
		if !want && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %q, %v, want nothing", buffer[:n], err)
		}
	}
	for what, ways := range map[string][2]bool{"to here": {true, false}, "to there": {false, true}, "both": {true, true}} {
		if err := cable.Lose(ways[0], ways[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
		arrives(what, false)
		if other, err := net.DialTimeout("tcp", address, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) &&
			!isTimeout(err) {
			if other != nil {
				other.Close()
			}
			t.Errorf("%s: a new connection: %v, want no answer", what, err)
		}
		if err := cable.Plug(); err != nil {
			t.Fatal(err)
		}
		arrives(what, true)
	}
	if err := cable.Unplug(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.DialTimeout("tcp", address, maxWait); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("a new connection without a cable: %v, want %v", err, syscall.ENETUNREACH)
	}
	if err := cable.Plug(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	arrives("again", true)
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// Two cables fail independently.
func TestCablesFailAlone(t *testing.T) {
	if !Alone(t) {
		return
	}
	bad, address := echoHost(t)
	good, err := bad.host.Cable()
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Lose(true, true); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(good.There, port), maxWait)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
