package memory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// reconnectPause is how long a broken connection takes until it is up again.
const reconnectPause = 20 * time.Millisecond

// Link is a [link.Link] to a Server.
type Link struct {
	server  *Server
	wakeup  chan struct{} // filled when there is a message, or when the link may be up again
	channel string        // set by Watch, before the server knows the link

	mu       sync.Mutex // guards all below; taken after Server.mu
	messages []quorum.Message

	// A step is one call of a function of events: they are called one at a time.
	step   sync.Mutex
	events link.Events
	up     bool
	life   int // of the server, when the link came up
	closed bool
}

var errStale = errors.New("the server began again")

// Name implements link.Link.
func (l *Link) Name() string { return l.server.name }

// Do implements link.Link.
func (l *Link) Do(ctx context.Context, requests []quorum.Request) ([]quorum.Reply, error) {
	requests = slices.Clone(requests)
	l.step.Lock()
	up, life := l.up, l.life
	l.step.Unlock()
	if !up {
		return nil, errors.Join(link.ErrUnsent, link.ErrDown)
	}
	s := l.server
	s.mu.Lock()
	there, back := s.delay(), s.delay()
	lose, before, double := s.percent(s.faults.Lose), s.percent(50), s.percent(s.faults.Double)
	again := there + time.Duration(s.random.Int64N(int64(time.Second)))
	s.mu.Unlock()
	if err := pause(ctx, there); err != nil {
		l.fail(err)
		return nil, err
	}
	if lose && before {
		l.fail(errDropped)
		return nil, errDropped
	}
	replies := s.execute(life, requests)
	if double {
		time.AfterFunc(again, func() { s.execute(life, requests) })
	}
	err := pause(ctx, back)
	switch {
	case err != nil:
	case lose:
		err = errDropped
	case replies == nil:
		err = errStale
	default:
		return replies, nil
	}
	l.fail(err)
	return nil, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Watch implements link.Link.
func (l *Link) Watch(ctx context.Context, to string, e link.Events) {
	l.step.Lock()
	l.events = e
	l.step.Unlock()
	l.channel = to
	s := l.server
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	l.wake()
	for {
		select {
		case <-l.wakeup:
			l.connect()
			l.deliver()
		case <-ctx.Done():
			s.mu.Lock()
			s.links = slices.DeleteFunc(s.links, func(other *Link) bool { return other == l })
			s.mu.Unlock()
			l.step.Lock()
			l.closed, l.up = true, false
			l.step.Unlock()
			return
		}
	}
}

// wake makes Watch look for messages and try to come up.
func (l *Link) wake() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// connect makes the link up if the server runs.
func (l *Link) connect() {
	l.step.Lock()
	defer l.step.Unlock()
	s := l.server
	s.mu.Lock()
	stopped, life := s.stopped, s.life
	s.mu.Unlock()
	if l.up || l.closed || stopped {
		return
	}
	l.up, l.life = true, life
	l.events.Up()
}

// fail makes the link down. It comes up again after a pause.
func (l *Link) fail(why error) {
	l.step.Lock()
	defer l.step.Unlock()
	if !l.up || l.closed {
		return
	}
	l.up = false
	l.events.Down(why)
	time.AfterFunc(reconnectPause, l.wake)
}

// lose reports that the server lost its data.
func (l *Link) lose() {
	l.step.Lock()
	defer l.step.Unlock()
	if l.closed {
		return
	}
	l.up = false
	l.events.Lost(link.ErrLost)
}

// receive delivers a message after a delay.
func (l *Link) receive(m quorum.Message, delay time.Duration) {
	time.AfterFunc(delay, func() {
		l.mu.Lock()
		l.messages = append(l.messages, m)
		l.mu.Unlock()
		l.wake()
	})
}

// deliver delivers the messages that have arrived.
func (l *Link) deliver() {
	l.mu.Lock()
	messages := l.messages
	l.messages = nil
	l.mu.Unlock()
	l.step.Lock()
	defer l.step.Unlock()
	for _, m := range messages {
		if l.up && !l.closed {
			l.events.Message(m)
		}
	}
}
