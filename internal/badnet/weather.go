package badnet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Weather says which faults happen, and how bad they are at worst. A fault whose
// field is zero does not happen.
type Weather struct {
	Change time.Duration // a mood lasts for up to twice as long; 100 ms if 0
	Fair   int           // of a hundred moods, those that are good

	Delay   time.Duration // of one write
	Stall   time.Duration // a direction, or both, keeps everything back for so long
	Swallow time.Duration // a direction, or both, goes nowhere for so long, and then the connection is cut
	Cut     bool          // connections are cut, also in the middle of a frame
	Drip    bool          // bytes come one by one
	Twice   bool          // frames to the server come twice
	Late    time.Duration // what a client sent before it was cut off comes so much later
	Replay  time.Duration // about so often what a connection of the past sent within the last Late comes again
	Refuse  time.Duration // nobody gets a new connection for so long, from time to time
}

// storm is weather at work.
type storm struct {
	proxy   *Proxy
	weather Weather
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// Storm begins bad weather, in place of the one before. [Proxy.Calm] ends it.
func (p *Proxy) Storm(w Weather) {
	if w.Change == 0 {
		w.Change = 100 * time.Millisecond
	}
	p.Calm()
	s := &storm{proxy: p, weather: w}
	s.life, s.end = context.WithCancel(p.life)
	p.mu.Lock()
	p.storm = s
	p.mu.Unlock()
	for _, c := range p.open() {
		s.cover(c)
	}
	random := p.random(4, 0)
	if w.Replay > 0 {
		s.running.Go(func() { s.replays(random) })
	}
	if w.Refuse > 0 {
		s.running.Go(func() { s.refusals(p.random(5, 0)) })
	}
}

// Calm ends all faults and returns when they have ended: what was held back is
// delivered, what is of no use any more is cut, and from then on this is a good
// network.
func (p *Proxy) Calm() {
	p.mu.Lock()
	s := p.storm
	p.storm = nil
	p.mu.Unlock()
	if s != nil {
		s.end()
		s.running.Wait()
	}
	p.Refuse(false)
	p.Set(Mood{})
}

// cover subjects a connection to the weather.
func (s *storm) cover(c *pair) {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	if s.proxy.storm != s {
		return // it is over already
	}
	s.running.Go(func() { s.rage(c, s.proxy.random(3, c.number)) })
}

// rage changes the mood of one connection until it is cut.
func (s *storm) rage(c *pair, random *rand.Rand) {
	for s.life.Err() == nil && c.life.Err() == nil && !c.isParted() {
		m, lasts, then := s.weather.next(c, random)
		c.set(m)
		s.pause(c, lasts)
		if then != nil && c.life.Err() == nil {
			then(s)
		}
	}
}

// next makes up a mood, for how long it lasts, and what happens after it.
func (w *Weather) next(c *pair, random *rand.Rand) (m Mood, lasts time.Duration, then func(*storm)) {
	lasts = upTo(random, 2*w.Change)
	if random.IntN(100) < w.Fair {
		return Mood{}, lasts, nil
	}
	var kinds []func()
	add := func(enabled bool, kind func()) {
		if enabled {
			kinds = append(kinds, kind)
		}
	}
	ways := func(change func(*Way)) {
		which := random.IntN(3)
		if which != 0 {
			change(&m.Up)
		}
		if which != 1 {
			change(&m.Down)
		}
	}
	add(w.Delay > 0, func() { ways(func(way *Way) { way.Delay = w.Delay }) })
	add(w.Stall > 0, func() { lasts = upTo(random, w.Stall); ways(func(way *Way) { way.Stall = true }) })
	add(w.Swallow > 0, func() {
		lasts = upTo(random, w.Swallow)
		ways(func(way *Way) { way.Swallow = true })
	})
	add(w.Cut, func() { then = func(*storm) { c.cut(random.IntN(2) == 0) } })
	add(w.Cut, func() { ways(func(way *Way) { way.Break = true }) })
	add(w.Drip, func() { ways(func(way *Way) { way.Drip = true }) })
	add(w.Twice, func() { m.Twice = 20 + random.IntN(81) })
	add(w.Late > 0, func() {
		m.Hold = true
		later := upTo(random, w.Late)
		then = func(s *storm) {
			c.part()
			s.pause(c, later)
			c.deliver()
		}
	})
	if len(kinds) > 0 {
		kinds[random.IntN(len(kinds))]()
	}
	return m, lasts, then
}

// pause waits for d, or until the weather or the connection is over.
func (s *storm) pause(c *pair, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	var over <-chan struct{}
	if c != nil {
		over = c.life.Done()
	}
	select {
	case <-t.C:
	case <-s.life.Done():
	case <-over:
	}
}

// replays sends what a connection of the past sent again, from time to time.
func (s *storm) replays(random *rand.Rand) {
	for s.life.Err() == nil {
		s.pause(nil, upTo(random, 2*s.weather.Replay))
		p := s.proxy
		p.mu.Lock()
		p.past = slices.DeleteFunc(p.past, func(old story) bool { return old.since(s.weather.Late) == nil })
		var frames [][]byte
		if n := len(p.past); n > 0 {
			frames = p.past[random.IntN(n)].since(s.weather.Late)
		}
		p.mu.Unlock()
		if len(frames) < 2 || s.life.Err() != nil {
			continue
		}
		from := 1 + random.IntN(len(frames)-1) // the first one is the greeting
		p.replay(append(frames[:1], frames[from:]...))
	}
}

// refusals closes the door from time to time.
func (s *storm) refusals(random *rand.Rand) {
	for s.life.Err() == nil {
		s.pause(nil, upTo(random, 20*s.weather.Refuse))
		s.proxy.Refuse(true)
		s.pause(nil, upTo(random, s.weather.Refuse))
		s.proxy.Refuse(false)
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d) + 1))
}
