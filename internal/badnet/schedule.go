package badnet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule says which faults occur at random, and bounds them. A fault whose field is zero does not
// occur.
type Schedule struct {
	Change  time.Duration // a profile lasts for at most twice as long; 0 means 100 ms
	Healthy int           // percentage of profiles without a fault

	Delay     time.Duration // of one write
	Stall     time.Duration // one direction or both stall for at most this time
	Discard   time.Duration // one direction or both discard all data for at most this time, then the connection is cut
	Cut       bool          // connections are cut, also within a frame
	Drip      bool          // bytes arrive one by one
	Duplicate bool          // frames to the server arrive twice
	Late      time.Duration // the last frames of a client that was cut off arrive later by at most this time
	Replay    time.Duration // mean interval at which frames of a closed connection, not older than Late, arrive again
	Refuse    time.Duration // from time to time no new connection is accepted, for at most this time
}

// run is a running schedule.
type run struct {
	proxy    *Proxy
	schedule Schedule
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Start starts a schedule in place of the previous one. [Proxy.Heal] stops it.
func (p *Proxy) Start(w Schedule) {
	if w.Change == 0 {
		w.Change = 100 * time.Millisecond
	}
	p.Heal()
	s := &run{proxy: p, schedule: w}
	s.ctx, s.cancel = context.WithCancel(p.ctx)
	p.mu.Lock()
	p.run = s
	p.mu.Unlock()
	for _, c := range p.open() {
		s.add(c)
	}
	random := p.random(4, 0)
	if w.Replay > 0 {
		s.running.Go(func() { s.replays(random) })
	}
	if w.Refuse > 0 {
		s.running.Go(func() { s.refusals(p.random(5, 0)) })
	}
}

// Heal ends all faults, and returns when they have ended: frames that were kept back are delivered, and
// unusable connections are cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	s := p.run
	p.run = nil
	p.mu.Unlock()
	if s != nil {
		s.cancel()
		s.running.Wait()
	}
	p.Refuse(false)
	p.Set(Profile{})
}

// add applies the schedule to a connection.
func (s *run) add(c *connection) {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	if s.proxy.run != s {
		return // the schedule has stopped
	}
	s.running.Go(func() { s.inject(c, s.proxy.random(3, c.number)) })
}

// inject changes the profile of one connection until it is cut.
func (s *run) inject(c *connection, random *rand.Rand) {
	for s.ctx.Err() == nil && c.ctx.Err() == nil && !c.isClientCut() {
		m, lasts, then := s.schedule.next(c, random)
		c.set(m)
		s.pause(c, lasts)
		if then != nil && c.ctx.Err() == nil {
			then(s)
		}
	}
}

// next returns a random profile, its duration, and the action at its end.
func (w *Schedule) next(c *connection, random *rand.Rand) (m Profile, lasts time.Duration, then func(*run)) {
	lasts = upTo(random, 2*w.Change)
	if random.IntN(100) < w.Healthy {
		return Profile{}, lasts, nil
	}
	var kinds []func()
	add := func(enabled bool, kind func()) {
		if enabled {
			kinds = append(kinds, kind)
		}
	}
	ways := func(change func(*Direction)) {
		which := random.IntN(3)
		if which != 0 {
			change(&m.Up)
		}
		if which != 1 {
			change(&m.Down)
		}
	}
	add(w.Delay > 0, func() { ways(func(d *Direction) { d.Delay = w.Delay }) })
	add(w.Stall > 0, func() { lasts = upTo(random, w.Stall); ways(func(d *Direction) { d.Stall = true }) })
	add(w.Discard > 0, func() {
		lasts = upTo(random, w.Discard)
		ways(func(d *Direction) { d.Discard = true })
	})
	add(w.Cut, func() { then = func(*run) { c.cut(random.IntN(2) == 0) } })
	add(w.Cut, func() { ways(func(d *Direction) { d.Break = true }) })
	add(w.Drip, func() { ways(func(d *Direction) { d.Drip = true }) })
	add(w.Duplicate, func() { m.Duplicate = 20 + random.IntN(81) })
	add(w.Late > 0, func() {
		m.Hold = true
		later := upTo(random, w.Late)
		then = func(s *run) {
			c.cutClient()
			s.pause(c, later)
			c.deliver()
		}
	})
	if len(kinds) > 0 {
		kinds[random.IntN(len(kinds))]()
	}
	return m, lasts, then
}

// pause waits for d, or until the schedule or the connection ends.
func (s *run) pause(c *connection, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	var over <-chan struct{}
	if c != nil {
		over = c.ctx.Done()
	}
	select {
	case <-t.C:
	case <-s.ctx.Done():
	case <-over:
	}
}

// replays sends the frames of a closed connection again, from time to time.
func (s *run) replays(random *rand.Rand) {
	for s.ctx.Err() == nil {
		s.pause(nil, upTo(random, 2*s.schedule.Replay))
		p := s.proxy
		p.mu.Lock()
		p.past = slices.DeleteFunc(p.past, func(old sent) bool { return old.since(s.schedule.Late) == nil })
		var frames [][]byte
		if n := len(p.past); n > 0 {
			frames = p.past[random.IntN(n)].since(s.schedule.Late)
		}
		p.mu.Unlock()
		if len(frames) < 2 || s.ctx.Err() != nil {
			continue
		}
		from := 1 + random.IntN(len(frames)-1) // the first frame is the handshake
		p.replay(append(frames[:1], frames[from:]...))
	}
}

// refusals refuses new connections from time to time.
func (s *run) refusals(random *rand.Rand) {
	for s.ctx.Err() == nil {
		s.pause(nil, upTo(random, 20*s.schedule.Refuse))
		s.proxy.Refuse(true)
		s.pause(nil, upTo(random, s.schedule.Refuse))
		s.proxy.Refuse(false)
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d) + 1))
}
