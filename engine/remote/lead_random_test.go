package remote

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// Some callers make calls, and give some of them up. The server answers in any order, in frames
// that it cuts at random places, with hints between. Each call that was not given up gets its own
// answer, and no hint is lost.
func TestEachCallGetsItsOwnAnswer(t *testing.T) {
	r := testmode.Rand(t)
	for range testmode.Pick(30, 1000) {
		seeds := [2]uint64{r.Uint64(), r.Uint64()}
		synctest.Test(t, func(t *testing.T) { answerAtRandom(t, rand.New(rand.NewPCG(seeds[0], seeds[1]))) })
	}
}

func answerAtRandom(t *testing.T, r *rand.Rand) {
	p := newPuppet(t)
	c := p.engine.conn
	c.Lock()
	c.lead.enough = 8 // more would be rare here
	c.Unlock()
	defer p.close()
	requests := make(chan *wire.Request, 100)
	go p.readRequests(t, requests)
	var callers sync.WaitGroup
	for range 1 + r.IntN(3) {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		callers.Go(func() { callAtRandom(t, p.engine, own) })
	}
	stop, hints := make(chan struct{}), 0
	go func() { callers.Wait(); close(stop) }()
	var open []*wire.Request
	for done := false; !done || len(open) > 0; {
		select {
		case m := <-requests:
			open = append(open, m)
			if r.IntN(3) > 0 {
				continue
			}
		case <-stop:
			stop, done = nil, true
		case <-time.After(time.Duration(r.IntN(3)) * briskGap):
		}
		f := new(wire.ServerFrame)
		for len(open) > 0 && r.IntN(4) > 0 {
			i := r.IntN(len(open))
			id := open[i].GetClaim().GetId()
			f.Replies = append(f.Replies, &wire.Reply{
				Call:   open[i].GetCall(),
				Status: hintOf(id, lockkeeper.Held),
			})
			open = append(open[:i], open[i+1:]...)
		}
		if r.IntN(10) == 0 {
			f.Changed = append(f.Changed, hintOf(1, lockkeeper.Held))
			hints++
		}
		for b := encoded(f); len(b) > 0; {
			n := 1 + r.IntN(len(b))
			p.send(b[:n])
			if b = b[n:]; r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(3)) * briskGap)
			}
		}
	}
	for range hints {
		<-p.hints
	}
	p.close()
	for range requests { // until its goroutine ends
	}
}

// readRequests sends all requests of the client to a channel, which it closes after the last one.
func (p *puppet) readRequests(t *testing.T, requests chan<- *wire.Request) {
	defer close(requests)
	for {
		message, err := readMessage(p.in, nil)
		if err != nil {
			return
		}
		f := new(wire.ClientFrame)
		if err := f.UnmarshalVT(message); err != nil {
			t.Error(err)
		}
		for _, m := range f.GetRequests() {
			requests <- m
		}
	}
}

// callAtRandom makes claims, each with an id of its own, which the answer has to repeat.
func callAtRandom(t *testing.T, e *Engine, r *rand.Rand) {
	life, end := context.WithCancel(context.Background())
	defer end()
	for range 60 {
		bound := time.Hour
		if r.IntN(6) == 0 {
			bound = time.Duration(r.IntN(int(3 * briskGap)))
		}
		caller, stop := context.WithCancel(context.Background())
		if r.IntN(6) == 0 {
			time.AfterFunc(time.Duration(r.IntN(int(3*briskGap))), stop)
		}
		ctx := roundtrip.New(caller, life, time.Now().Add(bound), nil)
		id := r.Uint64()>>1 + 1
		s, err := e.Claim(ctx, lockkeeper.Key{Session: "s", Epoch: 1}, lockkeeper.Want{
			ID:      id,
			Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
		})
		switch {
		case err == nil && s.Ref.ID != id:
			t.Errorf("claim %d gets the answer to %d", id, s.Ref.ID)
		case err != nil && caller.Err() == nil && bound == time.Hour:
			t.Errorf("a call that was not given up: %v", err)
		}
		ctx.End()
		stop()
		if r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.IntN(3)) * briskGap)
		}
	}
}
