package wire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// joined is a Conn with room for a number of unsent bytes, and the other end of its connection.
func joined(t *testing.T, room int, failed func(error)) (*Conn, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return NewConn(ours, ConnOptions{
		WriteTime: time.Minute,
		Room:      func(unsent int) bool { return unsent <= room },
		Failed:    failed,
	}), theirs
}

// put adds a reply of about 100 bytes.
func put(c *Conn, now bool) {
	c.Lock()
	c.Out.PutReply(&Reply{Call: 1, Status: &Status{Note: string(make([]byte, 100))}})
	c.End(now)
}

// replies reads one frame, and returns how many replies it has.
func replies(t *testing.T, in *bufio.Reader) int {
	t.Helper()
	length, err := ReadLength(in, MaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	message, err := ReadMessage(in, length, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var f ServerFrame
	if err := f.UnmarshalVT(message); err != nil {
		t.Fatal(err)
	}
	return len(f.GetReplies())
}

func awake(c *Conn) bool {
	select {
	case <-c.Wake():
		return true
	default:
		return false
	}
}

func TestMessagesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := joined(t, 1<<20, nil)
		for range 3 {
			put(c, false)
		}
		if !awake(c) {
			t.Fatal("the writing goroutine is not woken")
		}
		go c.Flush()
		synctest.Wait()
		for range 2 { // while the write is under way
			put(c, false)
		}
		if awake(c) {
			t.Error("the writing goroutine is woken while another one writes")
		}
		in := bufio.NewReader(peer)
		if first, second := replies(t, in), replies(t, in); first != 3 || second != 2 {
			t.Errorf("frames have %d and %d replies", first, second)
		}
		synctest.Wait()
		if !c.Sent() {
			t.Error("something is left")
		}
	})
}

func TestCorkKeepsTheWriterAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := joined(t, 1<<20, nil)
		c.Cork()
		put(c, false)
		put(c, false)
		if awake(c) {
			t.Error("the writing goroutine is woken")
		}
		go c.Uncork()
		if n := replies(t, bufio.NewReader(peer)); n != 2 {
			t.Errorf("a frame of %d replies", n)
		}
	})
}

func TestCallerWritesOnlyWhatCannotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := joined(t, 1<<20, nil)
		go io.Copy(io.Discard, peer)
		written := 0
		for ; ; written++ {
			if put(c, true); !c.Sent() {
				break
			}
			if written > fewBytes {
				t.Fatal("a caller writes however much is unheard")
			}
		}
		if written*100 > fewBytes || written*200 < fewBytes || !awake(c) {
			t.Errorf("callers wrote %d messages", written)
		}
		c.Flush()
		c.Received() // the peer has read the bytes sent so far
		if put(c, true); !c.Sent() {
			t.Error("a caller does not write though the peer reads")
		}
	})
}

func TestBeginWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := joined(t, 50, nil)
		put(c, false)
		<-c.Wake()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("without room: %v", err)
		}
		if !awake(c) {
			t.Error("a waiting caller wakes nobody")
		}
		began := make(chan error, 1)
		go func() { began <- c.Begin(t.Context()) }()
		go c.Flush()
		synctest.Wait()
		if len(began) > 0 {
			t.Fatal("bytes of a write under way do not count")
		}
		replies(t, bufio.NewReader(peer))
		if err := <-began; err != nil {
			t.Fatal(err)
		}
		c.End(false)
	})
}

func TestPeerThatReadsNothingIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := make(chan error, 2)
		c, peer := joined(t, 50, func(err error) { failures <- err })
		put(c, false)
		began := make(chan error, 1)
		go func() { began <- c.Begin(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		c.Flush()
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %s", took)
		}
		if err := <-began; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a waiting caller gets %v", err)
		}
		c.Fail(errors.New("again"))
		if err := <-failures; !errors.Is(err, os.ErrDeadlineExceeded) || len(failures) > 0 {
			t.Errorf("the user is notified of %v, and %d more", err, len(failures))
		}
		if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer reads %v", err)
		}
		if put(c, true); c.Out.Len() > 0 || !c.Sent() {
			t.Error("a failed connection keeps messages")
		}
	})
}
