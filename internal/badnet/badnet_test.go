package badnet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// maxWait bounds every wait.
const maxWait = 20 * time.Second

// arrival is a frame that the server received.
type arrival struct {
	connection int
	text       string // "" and an error when there are no more
	err        error
}

// server reports every frame that it receives, and echoes it.
type server struct {
	net.Listener
	arrivals chan arrival
}

func startServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{l, make(chan arrival, 100_000)}
	var running sync.WaitGroup
	running.Go(func() {
		for number := 0; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(number, c) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return s
}

func (s *server) serve(number int, c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		frame, err := readFrame(in)
		if err != nil {
			s.arrivals <- arrival{number, "", err}
			return
		}
		s.arrivals <- arrival{number, text(frame), nil}
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

// next returns the next arrival.
func (s *server) next(t *testing.T) arrival {
	t.Helper()
	select {
	case a := <-s.arrivals:
		return a
	case <-time.After(maxWait):
		t.Fatal("nothing arrives at the server")
		return arrival{}
	}
}

// gets fails the test unless these frames arrive next, on one connection.
func (s *server) gets(t *testing.T, texts ...string) (connection int) {
	t.Helper()
	for _, want := range texts {
		a := s.next(t)
		if a.text != want {
			t.Fatalf("the server gets %q (%v), want %q", a.text, a.err, want)
		}
		connection = a.connection
	}
	return connection
}

func (s *server) getsNothing(t *testing.T) {
	t.Helper()
	select {
	case a := <-s.arrivals:
		t.Fatalf("the server gets %+v, want nothing", a)
	default:
	}
}

func frameOf(text string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(text))), text...)
}

func text(frame []byte) string {
	_, n := binary.Uvarint(frame)
	return string(frame[n:])
}

// client is one end of a connection through the proxy.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(maxWait))
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := c.Write(frameOf(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// gets fails the test unless these frames arrive next at the client.
func (c *client) gets(t *testing.T, texts ...string) {
	t.Helper()
	for _, want := range texts {
		frame, err := readFrame(c.in)
		if err != nil || text(frame) != want {
			t.Fatalf("the client gets %q (%v), want %q", frame, err, want)
		}
	}
}

// ended fails the test unless the client is cut off.
func (c *client) ended(t *testing.T) {
	t.Helper()
	if frame, err := readFrame(c.in); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the client gets %q (%v), want the end of the connection", frame, err)
	}
}

func start(t *testing.T) (*Proxy, *server) {
	t.Helper()
	s := startServer(t)
	p, err := New(s.Addr().String(), testmode.Seed(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, s
}

// A slow network loses nothing and keeps the order.
func TestSlowNetworkLosesNothing(t *testing.T) {
	for name, m := range map[string]Profile{
		"good":  {},
		"delay": {Up: Direction{Delay: time.Millisecond}, Down: Direction{Delay: time.Millisecond}},
		"drip":  {Up: Direction{Drip: true}, Down: Direction{Drip: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := start(t)
			p.Set(m)
			c := dial(t, p)
			for i := range 50 {
				word := fmt.Sprintf("word %d", i)
				c.send(t, word)
				s.gets(t, word)
				c.gets(t, word)
			}
		})
	}
}

// A frameless proxy passes on every byte at once: it waits for no end of a frame.
func TestFramelessProtocol(t *testing.T) {
	s, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go func() {
		if c, err := s.Accept(); err == nil {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}
	}()
	p, err := NewFrameless(s.Addr().String(), testmode.Seed(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c := dial(t, p)
	for _, text := range []string{"PING", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "*1"} {
		got := make([]byte, len(text))
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Fatalf("%q comes back as %q, %v", text, got, err)
		}
	}
}

// A stalled direction resumes when the profile changes.
func TestStallResumes(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	c.send(t, "hello")
	c.gets(t, s.next(t).text)
	p.Set(Profile{Down: Direction{Stall: true}})
	c.send(t, "one")
	s.gets(t, "one") // the way up is good
	p.Set(Profile{Up: Direction{Stall: true}})
	c.gets(t, "one")
	c.send(t, "two", "three")
	s.getsNothing(t)
	p.Set(Profile{})
	s.gets(t, "two", "three")
	c.gets(t, "two", "three")
}

// A client whose data is discarded does not notice, and is cut off when the profile changes.
func TestDiscard(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	c.send(t, "hello")
	c.gets(t, s.next(t).text)
	p.Set(Profile{Up: Direction{Discard: true}})
	c.send(t, "one", "two")
	for p.Counts().Discarded.Load() < 2 {
		await(t)
	}
	s.getsNothing(t)
	p.Set(Profile{})
	c.ended(t)
	if a := s.next(t); a.err == nil {
		t.Errorf("the server gets %q, want the end of the connection", a.text)
	}
}

// await polls a condition that has no event.
func await(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(time.Millisecond):
	}
}

func TestDuplicate(t *testing.T) {
	p, s := start(t)
	p.Set(Profile{Duplicate: 100})
	c := dial(t, p)
	c.send(t, "hello", "one", "two")
	s.gets(t, "hello", "one", "one", "two", "two")
	c.gets(t, "hello", "one", "one", "two", "two")
}

// A connection may end within a frame.
func TestCutWithinFrame(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	c.send(t, "hello")
	c.gets(t, s.next(t).text)
	p.Set(Profile{Up: Direction{Break: true}})
	c.send(t, "a long word, of which not all arrives")
	if a := s.next(t); a.err == nil {
		t.Errorf("the server gets %q, want a part of it", a.text)
	}
	c.ended(t)
	if n := p.Counts().Broken.Load(); n != 1 {
		t.Errorf("%d connections were cut within a message, want 1", n)
	}
}

// The last frames of a connection arrive after the first frames of the client's next connection.
func TestLateFramesArriveAfterLaterOnes(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	c.send(t, "hello")
	c.gets(t, s.next(t).text)
	p.Set(Profile{Hold: true})
	c.send(t, "one", "two")
	for c := p.open()[0]; ; await(t) {
		c.mu.Lock()
		n := len(c.held)
		c.mu.Unlock()
		if n == 2 {
			break
		}
	}
	deliver := p.CutClients()
	c.ended(t)
	p.Set(Profile{})
	next := dial(t, p)
	next.send(t, "hello", "one", "three")
	s.gets(t, "hello", "one", "three")
	next.gets(t, "hello", "one", "three")
	if n := deliver(); n != 2 {
		t.Errorf("%d frames are delivered late, want 2", n)
	}
	if old := s.gets(t, "one", "two"); old != 0 {
		t.Errorf("the late frames come on connection %d, want the first one", old)
	}
	next.send(t, "four")
	for a := s.next(t); a.text != "four"; a = s.next(t) {
		if a.err == nil || a.connection != 0 {
			t.Errorf("the server gets %+v", a)
		}
	}
}

func TestReplayOfEarlierConnection(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	c.send(t, "hello", "one", "two")
	s.gets(t, "hello", "one", "two")
	c.Close()
	if a := s.next(t); a.err == nil { // io.EOF, or a reset: both end it
		t.Fatalf("the server gets %+v, want the end of the connection", a)
	}
	var n int
	for n == 0 { // the proxy has to see that both ends are closed
		await(t)
		n = p.Replay()
	}
	if n != 3 {
		t.Errorf("%d frames are replayed, want 3", n)
	}
	if again := s.gets(t, "hello", "one", "two"); again != 1 {
		t.Errorf("they come on connection %d, want one of their own", again)
	}
}

func TestRefuse(t *testing.T) {
	p, s := start(t)
	p.Refuse(true)
	if refused, err := net.Dial("tcp", p.Addr()); err == nil { // else it was refused even sooner
		c := &client{refused, bufio.NewReader(refused)}
		_ = c.SetDeadline(time.Now().Add(maxWait))
		c.ended(t)
		c.Close()
	}
	p.Refuse(false)
	c := dial(t, p)
	c.send(t, "hello")
	c.gets(t, s.next(t).text)
}

var worst = Schedule{
	Change:    10 * time.Millisecond,
	Healthy:   20,
	Delay:     2 * time.Millisecond,
	Stall:     20 * time.Millisecond,
	Discard:   30 * time.Millisecond,
	Cut:       true,
	Drip:      true,
	Duplicate: true,
	Late:      50 * time.Millisecond,
	Replay:    10 * time.Millisecond,
	Refuse:    5 * time.Millisecond,
}

// Every fault occurs, and none after Heal.
func TestScheduleInjectsEveryFault(t *testing.T) {
	p, s := start(t)
	p.Start(worst)
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					talk(t, p, fmt.Sprintf("client %d.%d", i, n))
				}
			}
		})
	}
	clients.Go(func() {
		defer close(stop)
		deadline := time.Now().Add(maxWait)
		for missing := p.Counts().missing(); missing != ""; missing = p.Counts().missing() {
			if time.Now().After(deadline) {
				t.Errorf("no %s in %s", missing, maxWait)
				return
			}
			<-s.arrivals
		}
	})
	clients.Wait()
	p.Heal()
	t.Log(p.Counts())
	c := dial(t, p)
	for i := range 20 {
		word := fmt.Sprintf("calm %d", i)
		c.send(t, word)
		c.gets(t, word)
	}
}

// talk sends and receives until an error.
func talk(t *testing.T, p *Proxy, name string) {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // refused
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	in := bufio.NewReader(c)
	for range 20 {
		if _, err := c.Write(frameOf(name)); err != nil {
			return
		}
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		if text(frame) != name {
			t.Errorf("%s gets %q", name, frame)
			return
		}
	}
}

// missing returns a fault that has not occurred, or "".
func (c *Counts) missing() string {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if v.Field(i).Addr().MethodByName("Load").Call(nil)[0].Int() == 0 {
			return v.Type().Field(i).Name
		}
	}
	return ""
}

// The same seed gives the same faults to the same connection.
func TestSameSeedSameFaults(t *testing.T) {
	p, _ := start(t)
	sequence := func(seed, number uint64) (profiles []Profile) {
		q := &Proxy{seed: seed}
		random := q.random(3, number)
		for range 50 {
			m, _, _ := worst.next(&connection{proxy: p}, random)
			profiles = append(profiles, m)
		}
		return profiles
	}
	if !reflect.DeepEqual(sequence(1, 2), sequence(1, 2)) {
		t.Error("the same seed and connection, gave other profiles")
	}
	if reflect.DeepEqual(sequence(1, 2), sequence(1, 3)) || reflect.DeepEqual(sequence(1, 2), sequence(2, 2)) {
		t.Error("another seed or connection, gave the same profiles")
	}
}
