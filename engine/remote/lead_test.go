package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A puppet is a server that does what a test says. It runs in a synctest bubble.
type puppet struct {
	t      *testing.T
	net    net.Conn
	in     *bufio.Reader
	engine *Engine
	hints  chan []lockkeeper.Status // of the session "s"; nil means that some may be missing
}

func newPuppet(t *testing.T) *puppet {
	ours, theirs := net.Pipe()
	e := &Engine{endpoint: &endpoint{addresses: []string{"pipe"}}}
	e.life, e.end = context.WithCancel(context.Background())
	c := newConn(e, ours, bufio.NewReader(ours), lockkeeper.Guarantees{})
	e.conn = c
	p := &puppet{t, theirs, bufio.NewReader(theirs), e, make(chan []lockkeeper.Status, 100)}
	e.subscriptions.attach("s", func(s []lockkeeper.Status) {
		p.hints <- append([]lockkeeper.Status(nil), s...)
	})(&lockkeeper.Lease{Key: lockkeeper.Key{Session: "s", Epoch: 1}, TTL: time.Hour})
	go c.receive()
	go c.write()
	return p
}

func (p *puppet) close() {
	p.engine.Close()
	p.net.Close()
}

// request returns the number and the argument of the next call.
func (p *puppet) request() *wire.Request {
	p.t.Helper()
	message, err := readMessage(p.in, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	f := new(wire.ClientFrame)
	if err := f.UnmarshalVT(message); err != nil || len(f.GetRequests()) != 1 {
		p.t.Fatalf("%d requests, %v", len(f.GetRequests()), err)
	}
	return f.GetRequests()[0]
}

func encoded(f *wire.ServerFrame) []byte {
	var b bytes.Buffer
	_ = wire.WriteFrame(&b, f) // a buffer takes everything
	return b.Bytes()
}

func (p *puppet) send(b []byte) {
	p.t.Helper()
	if _, err := p.net.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// release ends a claim of the session.
func (p *puppet) release(ctx context.Context, id uint64) error {
	return p.engine.End(ctx, lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
}

// start begins a call and returns its number, and where its end arrives.
func (p *puppet) start(ctx context.Context) (number uint64, end chan error) {
	end = make(chan error, 1)
	go func() { end <- p.release(ctx, 1) }()
	number = p.request().GetCall()
	synctest.Wait()
	return number, end
}

// hurry makes brisk calls until the receiver steps aside.
func (p *puppet) hurry() {
	p.t.Helper()
	for range briskCalls + 1 {
		number, end := p.start(p.t.Context())
		p.send(answerTo(number))
		if err := <-end; err != nil {
			p.t.Fatal(err)
		}
		synctest.Wait()
	}
	p.is(nobody)
}

func (p *puppet) is(want reader) {
	p.t.Helper()
	synctest.Wait()
	c := p.engine.conn
	c.Lock()
	defer c.Unlock()
	if got := c.lead.reader; got != want {
		p.t.Fatalf("reader %d, want %d", got, want)
	}
}

func answerTo(numbers ...uint64) []byte {
	f := new(wire.ServerFrame)
	for _, number := range numbers {
		f.Replies = append(f.Replies, &wire.Reply{Call: number})
	}
	return encoded(f)
}

func hintOf(id uint64, state lockkeeper.State) *wire.Status {
	return &wire.Status{Session: "s", Id: id, State: wire.State(state)}
}

// within runs a test in a bubble, with a puppet whose client's receiver has stepped aside.
func within(t *testing.T, test func(t *testing.T, p *puppet)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		p.hurry()
		test(t, p)
	})
}

// A caller that reads leaves at once when its context, its client or its deadline ends, also in the
// middle of a frame. No byte of that frame is lost.
func TestCallerLeavesInMiddleOfFrame(t *testing.T) {
	for name, ending := range map[string]func() (ctx context.Context, end func()){
		"caller": func() (context.Context, func()) { return context.WithCancel(context.Background()) },
		"caller of a Client": func() (context.Context, func()) {
			ctx, end := context.WithCancel(context.Background())
			return roundtrip.New(ctx, context.Background(), time.Now().Add(time.Hour), nil), end
		},
		"client": func() (context.Context, func()) {
			life, end := context.WithCancel(context.Background())
			return roundtrip.New(context.Background(), life, time.Now().Add(time.Hour), nil), end
		},
		"deadline": func() (context.Context, func()) {
			const bound = farAway / 2
			ctx := roundtrip.New(context.Background(), context.Background(), time.Now().Add(bound), nil)
			return ctx, func() { time.Sleep(bound) }
		},
	} {
		for _, part := range []int{0, 1, 5, 7} { // the length of a frame has five bytes
			t.Run(fmt.Sprintf("%s, after %d bytes", name, part), func(t *testing.T) {
				within(t, func(t *testing.T, p *puppet) {
					ctx, end := ending()
					given, left := p.start(ctx)
					p.is(caller)
					late := answerTo(given)
					if part > 0 {
						p.send(late[:part])
					}
					end()
					if err := <-left; !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, ctx.Err()) {
						t.Errorf("the caller gets %v", err)
					}
					p.is(receiver)
					number, done := p.start(t.Context())
					p.send(append(late[part:], answerTo(number)...))
					if err := <-done; err != nil {
						t.Errorf("the next call: %v", err)
					}
					p.hurry()
				})
			})
		}
	}
}

// A call with a grace goes on after the end of its context, is answered in that time, and ends
// after it. A connection whose call was given up is not taken for a dead one.
func TestCallGoesOnForGraceOfCaller(t *testing.T) {
	for _, answered := range []bool{true, false} {
		within(t, func(t *testing.T, p *puppet) {
			ctx, end := context.WithCancel(t.Context())
			number, left := p.start(roundtrip.New(ctx, context.Background(), time.Now().Add(time.Hour),
				roundtrip.NewGrace(time.Second)))
			p.is(caller)
			end()
			p.is(receiver)
			began := time.Now()
			if answered {
				time.Sleep(time.Second / 2)
				p.send(answerTo(number))
			}
			switch err := <-left; {
			case answered && err != nil:
				t.Errorf("answered in the grace: %v", err)
			case !answered && (!errors.Is(err, context.Canceled) || time.Since(began) != time.Second):
				t.Errorf("not answered: after %v it gets %v", time.Since(began), err)
			}
			p.hurry()
		})
	}
}

// A call whose context or client has ended already leaves at once.
func TestEndedContextDoesNotRead(t *testing.T) {
	within(t, func(t *testing.T, p *puppet) {
		ctx, end := context.WithCancel(t.Context())
		end()
		_, left := p.start(ctx)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("it gets %v", err)
		}
		p.is(receiver)
	})
	within(t, func(t *testing.T, p *puppet) {
		life, end := context.WithCancel(t.Context())
		ctx := roundtrip.New(context.Background(), life, time.Now().Add(time.Hour), nil)
		number, answered := p.start(ctx) // it read, so the connection watches the life already
		p.send(answerTo(number))
		if err := <-answered; err != nil {
			t.Error(err)
		}
		end()
		p.is(nobody)
		_, left := p.start(ctx)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the client has ended: it gets %v", err)
		}
	})
}

// Whichever of several calls is answered first, each gets its answer at once.
func TestReadingIsHandedOn(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}} {
		within(t, func(t *testing.T, p *puppet) {
			var numbers [3]uint64
			var ends [3]chan error
			for i := range numbers {
				numbers[i], ends[i] = p.start(t.Context())
			}
			p.is(caller)
			for _, i := range order {
				p.send(answerTo(numbers[i]))
				if err := <-ends[i]; err != nil {
					t.Error(err)
				}
			}
			p.is(receiver)
		})
	}
}

// Hints arrive at once while a call is open, and within two gaps after it. While a claim waits or a
// list is open, they always arrive at once.
func TestHintsArriveWhoeverReads(t *testing.T) {
	hint := encoded(&wire.ServerFrame{Changed: []*wire.Status{hintOf(7, lockkeeper.Held)}})
	arrives := func(t *testing.T, p *puppet, most time.Duration) {
		t.Helper()
		began := time.Now()
		p.send(hint)
		if s := <-p.hints; len(s) != 1 || s[0].Ref.ID != 7 || time.Since(began) > most {
			t.Errorf("after %v arrives %v", time.Since(began), s)
		}
	}
	t.Run("open call", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			number, end := p.start(t.Context())
			p.is(caller)
			arrives(t, p, 0)
			p.is(receiver) // the call is still open
			p.send(answerTo(number))
			if err := <-end; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("begun with the answer", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			number, end := p.start(t.Context())
			p.send(append(answerTo(number), hint[:3]...))
			if err := <-end; err != nil {
				t.Error(err)
			}
			p.is(receiver)
			p.send(hint[3:])
			<-p.hints
		})
	})
	t.Run("in the frame of the answer", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			number, end := p.start(t.Context())
			p.send(encoded(&wire.ServerFrame{
				Replies: []*wire.Reply{{Call: number}},
				Changed: []*wire.Status{hintOf(7, lockkeeper.Held)},
			}))
			if err := <-end; err != nil || len(<-p.hints) != 1 {
				t.Error(err)
			}
		})
	})
	t.Run("no call", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			arrives(t, p, 2*briskGap)
			p.is(receiver)
		})
	})
	t.Run("waiting claim", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			answered := make(chan error, 1)
			go func() {
				_, err := p.engine.Claim(t.Context(), lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Want{
					ID:      7,
					Wait:    lockkeeper.Forever,
					Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
				})
				answered <- err
			}()
			p.send(encoded(&wire.ServerFrame{Replies: []*wire.Reply{{
				Call:   p.request().GetCall(),
				Status: hintOf(7, lockkeeper.Waiting),
			}}}))
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
			p.is(receiver)
			for range 2 * briskCalls { // other calls don't change that
				number, end := p.start(t.Context())
				p.send(answerTo(number))
				if err := <-end; err != nil {
					t.Error(err)
				}
			}
			p.is(receiver)
			arrives(t, p, 0)
			p.hurry() // no claim waits any more
		})
	})
	t.Run("list", func(t *testing.T) {
		within(t, func(t *testing.T, p *puppet) {
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range p.engine.List(ctx, lockkeeper.Query{Follow: true}) {
				}
			}()
			p.request()
			for range 2 {
				p.is(receiver)
				arrives(t, p, 0)
			}
			end()
			if _, err := readMessage(p.in, nil); err != nil { // the flow that stops it
				t.Error(err)
			}
			<-ended
		})
	})
}

// The end of a connection is noticed by the call that is open, and if none is, within two
// gaps. Close returns in each state.
func TestEndOfConnectionIsNoticed(t *testing.T) {
	for _, close := range []func(p *puppet){
		func(p *puppet) { p.net.Close() },
		func(p *puppet) { p.engine.Close() },
		func(p *puppet) { Break(p.engine) },
		func(p *puppet) { p.send(encoded(&wire.ServerFrame{Refused: &wire.Error{Code: wire.Code_CODE_DENIED}})) },
		func(p *puppet) { p.send([]byte{1, 255}) },
	} {
		within(t, func(t *testing.T, p *puppet) {
			began := time.Now()
			c := p.engine.conn
			close(p)
			<-c.over
			if late := time.Since(began); late > 2*briskGap {
				t.Errorf("nobody read: noticed after %v", late)
			}
		})
		within(t, func(t *testing.T, p *puppet) {
			began := time.Now()
			c := p.engine.conn
			_, end := p.start(t.Context())
			p.is(caller)
			close(p)
			if err := <-end; !errors.Is(err, lockkeeper.ErrUnavailable) || time.Since(began) > 0 {
				t.Errorf("a caller read: after %v it gets %v", time.Since(began), err)
			}
			<-c.over
		})
	}
}

// A caller whose answer takes long hands the reading on when it comes.
func TestReceiverRestsDuringLongCall(t *testing.T) {
	within(t, func(t *testing.T, p *puppet) {
		number, end := p.start(t.Context())
		time.Sleep(time.Second)
		p.is(caller)
		p.send(answerTo(number))
		if err := <-end; err != nil {
			t.Error(err)
		}
		p.is(receiver)
		p.hurry()
	})
}
