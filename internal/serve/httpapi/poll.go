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

// How long a request may stay open to wait for a change.
const (
	defaultPoll = 20 * time.Second
	maxPoll     = time.Minute
	retry       = time.Second // after a List that failed
)

// errGone means that the client did not wait for its answer.
var errGone error = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the client has gone"}

// pollOf returns the parameter poll; otherwise if it is absent.
func pollOf(text string, otherwise time.Duration, m *mistakes) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := parseDuration("poll", text)
	m.add(err)
	if d > maxPoll {
		m.addf("poll %s is out of range: 0 to %s; ask again after that", quoted(text), maxPoll)
	}
	return d
}

// pollFor returns the default poll of a claim that may wait for so long: a second longer, so that
// the answer includes the end of the wait.
func pollFor(wait time.Duration) time.Duration {
	if wait == 0 {
		return 0
	}
	return min(wait, defaultPoll-retry) + retry
}

// changeOf returns the parameter change; 0 if it is absent.
func changeOf(text string, m *mistakes) uint64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		m.addf("change %s is not a number: give the change of the latest answer", quoted(text))
	}
	return n
}

// A poll waits until the status of one claim satisfies a condition, or until its time is over. It
// ends early if the client has gone, or its credentials are withdrawn.
type poll struct {
	*call
	ref    lockkeeper.Ref
	until  time.Time
	enough func(*lockkeeper.Status) bool // the condition
	leave  func()
}

// open begins a poll of at most d; nil if d is 0. The caller closes it.
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

// close ends a poll; p may be nil.
func (p *poll) close() {
	if p != nil {
		p.leave()
	}
}

// follow sends to wake when a status satisfies the condition, and when it may have missed one,
// until ctx ends. It is a hint: the receiver asks the engine.
func (p *poll) follow(ctx context.Context, wake chan<- struct{}) {
	notify := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	for {
		for st, err := range p.engine().List(ctx, lockkeeper.Query{Ref: p.ref, Follow: true, Brief: true}) {
			if err != nil {
				break
			}
			if p.enough(&st) {
				notify()
			}
		}
		if solo.Pause(ctx, retry) != nil {
			return
		}
		notify()
	}
}

// watch waits for the condition or the end of the poll, and returns the last result of ask. It
// calls ask, which asks the engine, after each hint, at the end, and at the interval every if that
// is not 0, because ask may renew the claim.
func (p *poll) watch(every time.Duration, ask func(context.Context) (observation, error)) (observation, error) {
	ctx, cancel := context.WithCancel(p.r.Context())
	defer cancel()
	wake, followed := make(chan struct{}, 1), make(chan struct{})
	go func() { defer close(followed); p.follow(ctx, wake) }()
	defer func() { cancel(); <-followed }()
	next, last := every, false
	for {
		wait := time.Until(p.until)
		if next != 0 {
			wait = min(wait, next)
		}
		timer := time.NewTimer(wait)
		select {
		case <-wake:
		case <-timer.C:
		case <-p.api.stopping:
			last = true
		case <-p.pass.Done():
			timer.Stop()
			return observation{}, credentialsWithdrawn()
		case <-ctx.Done():
			timer.Stop()
			return observation{}, errGone
		}
		timer.Stop()
		last = last || !time.Now().Before(p.until)
		now, err := ask(ctx)
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

func credentialsWithdrawn() error {
	return unauthenticated("these credentials are no longer valid", `Bearer error="invalid_token"`)
}

// keep is watch for a claim that the poll renews.
func (p *poll) keep(t *claimSession) (observation, error) {
	p.ref = t.Ref()
	return p.watch(t.ttl/3, func(ctx context.Context) (observation, error) { return t.renew(ctx) })
}
