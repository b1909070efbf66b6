package httpapi

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// For how long a request may stay open to wait for news.
const (
	defaultPoll = 20 * time.Second
	longestPoll = time.Minute
	retry       = time.Second // after what failed
)

// errGone: the client did not wait for its answer.
var errGone error = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the client has gone"}

// pollOf reads the parameter poll; "" is otherwise.
func pollOf(text string, otherwise time.Duration, m *mistakes) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := spanOf("poll", text)
	m.add(err)
	if d > longestPoll {
		m.addf("poll %s is out of range: 0 to %s; ask again when it is over", quoted(text), longestPoll)
	}
	return d
}

// pollFor is for how long a request stays open that waits for so long, if it does
// not say: a moment longer, so that it hears that the wait is over.
func pollFor(wait time.Duration) time.Duration {
	if wait == 0 {
		return 0
	}
	return min(wait, defaultPoll-retry) + retry
}

// changeOf reads the parameter change; 0 if it is not given.
func changeOf(text string, m *mistakes) uint64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		m.addf("change %s is no number: give that of the latest answer", quoted(text))
	}
	return n
}

// A poll waits for news of one claim. It ends when its client is gone, and when the
// pass is withdrawn.
type poll struct {
	*call
	ref    lockkeeper.Ref
	until  time.Time
	enough func(*lockkeeper.Status) bool // it is worth an answer
	leave  func()
}

// open begins a poll of at most d; nil if d is 0. Close it.
func (c *call) open(d time.Duration) (*poll, error) {
	if d == 0 {
		return nil, nil
	}
	leave, err := c.take(limits.Polls)
	if err != nil {
		return nil, err
	}
	return &poll{call: c, until: c.received.Add(d), leave: leave}, nil
}

// close ends a poll; nil may be closed too.
func (p *poll) close() {
	if p != nil {
		p.leave()
	}
}

// follow rings the bell when something is followed that is enough, and when it is
// not sure that nothing was missed, until ctx ends. It only wakes: whoever is woken
// asks for the truth.
func (p *poll) follow(ctx context.Context, bell chan<- struct{}) {
	ring := func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	for {
		for st, err := range p.engine().List(ctx, lockkeeper.Query{Ref: p.ref, Follow: true, Brief: true}) {
			if err != nil {
				break
			}
			if p.enough(&st) {
				ring()
			}
		}
		if solo.Pause(ctx, retry) != nil {
			return
		}
		ring()
	}
}

// watch waits until there is enough to tell, or the poll is over. truth asks the
// engine; it is called when something seems to have happened, at the end, and every
// so often if every is not 0, since it keeps the claim alive. What it says last is
// the answer.
func (p *poll) watch(every time.Duration, truth func(context.Context) (observation, error)) (observation, error) {
	ctx, cancel := context.WithCancel(p.r.Context())
	defer cancel()
	bell, followed := make(chan struct{}, 1), make(chan struct{})
	go func() { defer close(followed); p.follow(ctx, bell) }()
	defer func() { cancel(); <-followed }()
	next, last := every, false
	for {
		wait := time.Until(p.until)
		if next != 0 {
			wait = min(wait, next)
		}
		timer := time.NewTimer(wait)
		select {
		case <-bell:
		case <-timer.C:
		case <-p.api.stopping:
			last = true
		case <-p.pass.Done():
			timer.Stop()
			return observation{}, withdrawn()
		case <-ctx.Done():
			timer.Stop()
			return observation{}, errGone
		}
		timer.Stop()
		last = last || !time.Now().Before(p.until)
		now, err := truth(ctx)
		switch {
		case ctx.Err() != nil:
			return now, errGone
		case last, err == nil && p.enough(&now.Status), err != nil && !errors.Is(err, lockkeeper.ErrUnavailable):
			return now, err
		case err != nil:
			next = retry
		default:
			next = every
		}
	}
}

func withdrawn() error {
	return unauthenticated("what you were let in by is not valid any more", `Bearer error="invalid_token"`)
}

// keep is watch for a claim that the poll renews for its client.
func (p *poll) keep(t *claimSession) (observation, error) {
	p.ref = t.Ref()
	return p.watch(t.ttl/3, func(ctx context.Context) (observation, error) { return t.renew(ctx) })
}
