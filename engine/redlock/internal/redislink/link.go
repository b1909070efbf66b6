package redislink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/script"
)

const (
	// joinBound is how long a server may take for the exchange of a new connection.
	joinBound = 5 * time.Second
	// leastPause and mostPause bound the pause before the next try, which doubles.
	leastPause = 20 * time.Millisecond
	mostPause  = 2 * time.Second
	// steadyAfter: a link that was up for so long begins with leastPause again.
	steadyAfter = 10 * time.Second
	// reviewPause is the longest time between two looks at the settings of a server.
	reviewPause = time.Minute
)

// Why a link connects again.
var (
	errAgain    = errors.New("a request failed")
	errSettings = errors.New("its settings were changed")
)

// redisLink is the link to one server.
//
// One session of Watch is one subscription, and one connection for requests, which is asked for the run
// id of the server's process before it carries any. A script publishes that id on the channel of the party
// too. A connection ends with the process that accepted it. So the link knows that the subscription, the
// record of the membership and the requests are about the same process.
type redisLink struct {
	group *Group
	index int
	conn  redisconn.Server
	kick  chan struct{} // filled when the session of Watch has to end

	mu      sync.Mutex // held while an event is delivered; taken after Group.mu
	events  *link.Events
	up      bool
	lost    bool // Lost was the latest event
	process process
	why     error // why it is not up
	stopped bool  // Watch has returned
}

// process is the process of the server under which a link is up.
type process struct {
	run  string               // its run id
	conn redisconn.Connection // leads to it
}

// Name implements link.Link.
func (l *redisLink) Name() string { return l.conn.Address() }

// Watch implements link.Link.
func (l *redisLink) Watch(ctx context.Context, to string, e link.Events) {
	l.mu.Lock()
	l.events = &e
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.stopped, l.up = true, false
		l.mu.Unlock()
	}()
	for pause := leastPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		began := time.Now()
		err := l.session(ctx, l.group.prefix+to)
		if ctx.Err() != nil {
			return
		}
		l.down(err)
		if time.Since(began) > steadyAfter {
			pause = leastPause
		}
		wait(ctx, pause/2+mathrand.N(pause/2), nil)
	}
}

// wait waits for a time, for ctx, or for stop.
func wait(ctx context.Context, pause time.Duration, stop <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-stop:
	case <-timer.C:
	}
}

// session subscribes, waits until the server is a member, keeps the link up until something fails,
// and returns why.
func (l *redisLink) session(ctx context.Context, channel string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-l.kick:
	default:
	}
	ready, runs := make(chan struct{}), make(chan string, 1)
	nonce := rand.Text()
	var listening sync.WaitGroup
	listening.Go(func() {
		err := l.conn.Subscribe(ctx, []string{channel}, func() { close(ready) }, func(_, payload string) {
			if run, ours := strings.CutPrefix(payload, nonce+" "); ours {
				select {
				case runs <- run:
				default:
				}
				return
			}
			l.deliver(payload)
		})
		cancel(err)
	})
	defer listening.Wait()
	defer cancel(nil)
	if err := await(ctx, ready); err != nil {
		return err
	}
	joining, stop := context.WithTimeout(ctx, joinBound)
	defer stop()
	if err := l.group.servers.Announce(joining, l.index, channel, nonce); err != nil {
		return err
	}
	run, err := receive(joining, runs)
	if err != nil {
		return err
	}
	conn := l.conn.Connect()
	defer conn.Close()
	if err := verify(joining, conn, run); err != nil {
		return err
	}
	if err := load(joining, conn); err != nil {
		return err
	}
	if err := l.join(ctx, process{run: run, conn: conn}); err != nil {
		return err
	}
	listening.Go(func() { l.group.sweepAfterReturn(ctx, l.index) })
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.kick:
			return errAgain
		case <-time.After(reviewPause/2 + mathrand.N(reviewPause/2)):
			if err := l.review(ctx); err != nil {
				return err
			}
		}
	}
}

// review reads the settings of the server, which an operator may change while it runs. It returns an
// error if they matter and changed, so that the link begins again with them.
func (l *redisLink) review(ctx context.Context) error {
	bounded, stop := context.WithTimeout(ctx, joinBound)
	defer stop()
	facts, err := redisconn.Inspect(bounded, l.conn)
	if err != nil {
		return nil // requests will show whether the server answers
	}
	if before := l.group.inspected(l.index); facts.Loses() != before.Loses() || facts.Refusal() != nil {
		return errSettings
	}
	return nil
}

// verify asks the connection which process answers it: the same as the subscription leads to, or it may not
// be used.
func verify(ctx context.Context, conn redisconn.Connection, run string) error {
	replies, err := conn.Pipeline(ctx, [][]any{{"EVAL", membership.RunID, 0}})
	if err != nil {
		return err
	}
	if refused, ok := replies[0].(error); ok {
		return fmt.Errorf("the question for its run id: %w", refused)
	}
	if replies[0] != run {
		return errors.New("it was restarted, or its address leads to several servers")
	}
	return nil
}

// await waits until ready is closed, within joinBound.
func await(ctx context.Context, ready <-chan struct{}) error {
	bounded, stop := context.WithTimeout(ctx, joinBound)
	defer stop()
	select {
	case <-ready:
		return nil
	case <-bounded.Done():
		return noAnswer(ctx)
	}
}

func receive(ctx context.Context, runs <-chan string) (string, error) {
	select {
	case run := <-runs:
		return run, nil
	case <-ctx.Done():
		return "", noAnswer(ctx)
	}
}

// noAnswer returns why ctx ended, or that the time for an answer is over.
func noAnswer(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no answer within %v", joinBound)
}

// join waits until the server is a member, and brings the link up. own is the process that the
// subscription leads to.
func (l *redisLink) join(ctx context.Context, own process) error {
	l.group.forget(l.index)
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := l.group.advance(ctx)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		r := &s.seen[l.index]
		switch {
		case r.Answered && r.RunID != own.run:
			return errors.New("it was restarted")
		case s.plan.Lost[l.index] != "":
			l.lose(fmt.Errorf("%w: %s", link.ErrLost, s.plan.Lost[l.index]))
		case !r.Answered && r.Why != nil:
			l.down(r.Why)
		}
		if s.plan.Err != nil {
			l.down(s.plan.Err)
		} else if r.Answered && s.plan.Members[l.index] && r.Vector.Equal(s.plan.Vector) {
			if l.rise(own, s.plan.Vector) {
				return nil
			}
		}
		next := pause/2 + mathrand.N(pause/2)
		if until := time.Duration(r.Out-r.Now) * time.Microsecond; r.Out > 0 && until > 0 {
			next = min(until+time.Millisecond, mostPause)
		}
		wait(ctx, next, nil)
	}
}

// rise brings the link up, unless the vector has changed since.
func (l *redisLink) rise(own process, v membership.Vector) bool {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	if !l.group.vector.Equal(v) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.kick: // it was about the time before
	default:
	}
	l.up, l.lost, l.process, l.why = true, false, own, nil
	l.events.Up()
	return true
}

// down reports that the server can't be used, if it was up or the reason is new.
func (l *redisLink) down(why error) {
	if why == nil {
		why = link.ErrDown
	}
	if why = l.group.denied(why); errors.Is(why, ErrDenied) {
		defer l.group.setErr(fmt.Errorf("%s: %w", l.conn.Address(), why))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := !l.up && l.why != nil && (why == errAgain || l.why.Error() == why.Error())
	if l.events == nil || l.stopped || l.lost || known {
		return
	}
	l.up, l.why = false, why
	l.events.Down(why)
}

// lose reports that the server lost its data, once for each time that it was up.
func (l *redisLink) lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
	if l.events == nil || l.stopped || l.lost {
		return
	}
	l.up, l.lost, l.why = false, true, why
	l.events.Lost(why)
}

// fail takes the link down because of a request, and has Watch connect again.
func (l *redisLink) fail(why error) {
	l.down(why)
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// deliver passes a message on. Messages of a link that is not up come too early or too late.
func (l *redisLink) deliver(payload string) {
	m, err := script.DecodeMessage([]byte(payload))
	if err != nil {
		return // anybody may publish
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up && !l.stopped {
		l.events.Message(m)
	}
}

// load makes sure that the server has the scripts.
func load(ctx context.Context, conn redisconn.Connection) error {
	var commands [][]any
	for _, s := range script.Scripts() {
		commands = append(commands, []any{"SCRIPT", "LOAD", s.Text})
	}
	replies, err := conn.Pipeline(ctx, commands)
	if err != nil {
		return err
	}
	for _, reply := range replies {
		if refused, ok := reply.(error); ok {
			return refused
		}
	}
	return nil
}
