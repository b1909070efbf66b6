package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/wire"
)

// abuse is something that clients do to a server until stop is closed. ready is
// called by each of them, crowd in number, when it has done its worst for the
// first time.
type abuse struct {
	name  string
	crowd int
	most  uint64 // bytes of memory that it may cost the server
	do    func(t *testing.T, address string, n int, ready func(), stop <-chan struct{})
}

var abuses = []abuse{
	{"clients that do not read the news", 100, 100 << 20, deafFollower},
	{"clients that do not read answers", 20, 80 << 20, deafAsker},
	{"one byte at a time", 100, 50 << 20, dripper},
	{"large frames that do not come", 500, 150 << 20, announcer},
	{"too large frames", 50, 50 << 20, boaster},
	{"garbage", 50, 50 << 20, babbler},
	{"a million lists", 4, 200 << 20, asker},
}

// stalled is a lock and its release that abuse keeps from going on: on a machine that is not
// busy otherwise they take some milliseconds beside it.
const stalled = time.Second

// Whatever others do, a client's calls go on, and what it costs the server is bounded.
func TestAbuse(t *testing.T) {
	for _, a := range abuses {
		t.Run(a.name, func(t *testing.T) { a.test(t) })
	}
}

// It takes the server a while to have enough of who says nothing.
func TestNoGreeting(t *testing.T) {
	t.Parallel()
	(&abuse{"no greeting", 1000, 100 << 20, silent}).test(t)
}

func (a *abuse) test(t *testing.T) {
	s := serve(t, "127.0.0.1:0", "mem", "")
	table := mustLocker(t, s.address, "table")
	for i := range uint64(1000) { // so that there is something to list
		table.put(claim("table", table.epoch, i+1, fmt.Sprint("held/", i), 0))
	}
	if _, err := table.all(1000); err != nil {
		t.Fatal(err)
	}
	calm := roles.Start(t, "calm", s.address)
	rate := func(times int) (once time.Duration) {
		t.Helper()
		fmt.Fprintln(calm.In, times)
		var median, longest int64
		if _, err := fmt.Sscan(calm.Read("locked"), &median, &longest); err != nil {
			t.Fatal(err)
		}
		return time.Duration(median)
	}
	rate(300)
	before, alone := s.memory(), rate(300)
	stop := make(chan struct{})
	var running sync.WaitGroup
	var ready atomic.Int64
	for n := range a.crowd {
		running.Go(func() {
			a.do(t, s.address, n, func() { ready.Add(1) }, stop)
		})
	}
	worst, steady := before, time.Duration(0)
	for end, rounds := time.Now().Add(patience), 0; rounds < 5; {
		counts := int(ready.Load()) >= a.crowd // before that it is the computer that is busy
		once := rate(30)
		if m := s.memory(); m.live > worst.live {
			worst = m
		}
		if counts {
			rounds++
			steady = max(steady, once)
		} else if time.Now().After(end) {
			t.Errorf("only %d of %d have done their worst in %s", ready.Load(), a.crowd, patience)
			break
		}
	}
	close(stop)
	running.Wait()
	t.Logf("a lock and its release: %s alone, at worst %s beside it; memory before: %s; at worst: %s", alone, steady, before, worst)
	if steady > stalled {
		t.Errorf("a lock and its release take %s, %s without the abuse", steady, alone)
	}
	if worst.live > before.live+a.most {
		t.Errorf("it costs the server %d MB, want at most %d", (worst.live-before.live)>>20, a.most>>20)
	}
}

func init() { parts["calm"] = playCalm }

// playCalm locks and releases in a process of its own, so that what keeps the
// abusers busy is not in its way, and tells how long that takes.
func playCalm(args []string) error {
	l, err := newLocker(args[0], "calm")
	if err != nil {
		return err
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		times, err := strconv.Atoi(commands.Text())
		if err != nil {
			return err
		}
		took := make([]time.Duration, times)
		for i := range took {
			if took[i], err = l.once(); err != nil {
				return err
			}
		}
		slices.Sort(took)
		fmt.Println("locked", int64(took[len(took)/2]), int64(took[len(took)-1]))
	}
	return nil
}

// connect connects an abuser, with hello.
func connect(t *testing.T, address string) *raw {
	r, err := dialRaw(address)
	if err != nil {
		t.Errorf("an abuser: %v", err)
		return nil
	}
	_ = r.SetDeadline(time.Time{})
	return r
}

// deafFollower follows all changes, with credit without end, and reads none.
func deafFollower(t *testing.T, address string, _ int, ready func(), stop <-chan struct{}) {
	r := connect(t, address)
	if r == nil {
		return
	}
	defer r.Close()
	_ = r.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	r.put(&wire.Request{List: wire.SendQuery(&lockkeeper.Query{Follow: true}, 1<<31)})
	if err := r.send(); err != nil {
		t.Error(err)
	}
	ready()
	<-stop
}

// deafAsker asks for what has long answers until the server reads no more.
func deafAsker(t *testing.T, address string, n int, ready func(), stop <-chan struct{}) {
	r := connect(t, address)
	if r == nil {
		return
	}
	defer r.Close()
	_ = r.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	session := fmt.Sprint("deaf", n)
	reply, err := r.one(attach(session, time.Minute))
	if err != nil {
		t.Error(err)
		return
	}
	epoch := reply.GetLease().GetEpoch()
	for i := range uint64(20) {
		r.put(claim(session, epoch, i+1, fmt.Sprint("held/", i), lockkeeper.Forever))
	}
	if _, err := r.all(20); err != nil {
		t.Error(err)
		return
	}
	for {
		for range 100 {
			r.put(&wire.Request{Session: session, Epoch: epoch, Renew: true})
		}
		_ = r.SetWriteDeadline(time.Now().Add(time.Second))
		if err := r.send(); err != nil {
			break // it does not read any more, or has cut this off
		}
		select {
		case <-stop:
			return
		default:
		}
	}
	ready()
	<-stop
}

// dripper is a client like any other, but for its writes of single bytes.
func dripper(t *testing.T, address string, n int, ready func(), stop <-chan struct{}) {
	r := connect(t, address)
	if r == nil {
		return
	}
	defer r.Close()
	session := fmt.Sprint("slow", n)
	reply, err := r.one(attach(session, time.Minute))
	if err != nil {
		t.Error(err)
		return
	}
	first := ready
	for {
		r.put(&wire.Request{Session: session, Epoch: reply.GetLease().GetEpoch(), Renew: true})
		for _, b := range r.out.Take(nil) {
			if _, err := r.Write([]byte{b}); err != nil {
				t.Error(err)
				return
			}
		}
		replies, err := r.all(1)
		if err != nil || replies[0].GetLease() == nil {
			t.Errorf("answered %v, %v", replies, err)
			return
		}
		if first != nil {
			first()
			first = nil
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// silent connects and says nothing, until the server has enough of it.
func silent(t *testing.T, address string, _ int, ready func(), stop <-chan struct{}) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Error(err)
		ready()
		return
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server keeps a connection that does not greet it for %s (%v)", patience, err)
	}
	ready()
	<-stop
}

// announcer announces frames that are as large as allowed, and sends little of them.
func announcer(t *testing.T, address string, _ int, ready func(), stop <-chan struct{}) {
	r := connect(t, address)
	if r == nil {
		return
	}
	defer r.Close()
	if _, err := r.Write(append(binary.AppendUvarint(nil, wire.MaxFrame), "not much"...)); err != nil {
		t.Error(err)
	}
	ready()
	<-stop
}

// boaster announces frames that are larger than allowed. The server says what is
// wrong, and hangs up.
func boaster(t *testing.T, address string, n int, ready func(), stop <-chan struct{}) {
	sizes := []uint64{wire.MaxFrame + 1, 1 << 31, 1 << 35, 1<<63 + 1}
	for i := 0; ; i++ {
		r := connect(t, address)
		if r == nil {
			return
		}
		_ = r.SetDeadline(time.Now().Add(patience))
		_, _ = r.Write(append(binary.AppendUvarint(nil, sizes[(n+i)%len(sizes)]), bytes.Repeat([]byte{0}, 1000)...))
		if _, err := r.frame(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a frame of %d bytes: %v", sizes[(n+i)%len(sizes)], err)
		}
		r.Close()
		if i == len(sizes) {
			ready()
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// babbler sends what is no message, or no message that makes sense, with and
// without a greeting.
func babbler(t *testing.T, address string, n int, ready func(), stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(uint64(n), 7))
	for i := 0; ; i++ {
		c, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if i%2 == 0 {
			_ = wire.WriteFrame(c, &wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
		}
		garbage := make([]byte, 1+random.IntN(4000))
		for k := range garbage {
			garbage[k] = byte(random.Uint32())
		}
		if i%3 == 0 { // a frame that is whole, at least
			garbage = append(binary.AppendUvarint(nil, uint64(len(garbage))), garbage...)
		}
		_, _ = c.Write(garbage)
		_ = c.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, bufio.NewReader(c)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server keeps a connection that has sent garbage, and its end")
		}
		c.Close()
		if i == 20 {
			ready()
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// asker asks for a quarter of a million lists without waiting for answers, which it
// reads as long as the test goes on.
func asker(t *testing.T, address string, _ int, ready func(), stop <-chan struct{}) {
	r := connect(t, address)
	if r == nil {
		return
	}
	defer r.Close()
	const lists, batch = 250_000, 1000
	go func() {
		var q lockkeeper.Query
		q.Session = "calm"
		for i := 0; i < lists; i += batch {
			for range batch {
				r.put(&wire.Request{List: wire.SendQuery(&q, 1000)})
			}
			if r.send() != nil {
				return
			}
		}
	}()
	first := ready
	for ended := 0; ended < lists; {
		select {
		case <-stop:
			return
		default:
		}
		_ = r.SetReadDeadline(time.Now().Add(patience))
		f, err := r.frame()
		if err != nil {
			t.Error(err)
			return
		}
		for _, m := range f.GetReplies() {
			if !m.GetMore() {
				ended++
			}
			if e := m.GetError(); e != nil && e.GetReason() != wire.Reason_REASON_QUOTA {
				t.Error(e.Read())
			}
		}
		if first != nil && ended > lists/50 {
			first()
			first = nil
		}
	}
	<-stop
}
