package neighbours

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/rawwire"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// An attack is something that one identity does within what it is allowed.
type attack struct {
	name   string
	conns  int    // connections that it has
	rate   int    // calls a second that it makes; 0: none, once it has done its worst
	size   int    // of what it does; the short form divides it by shrink
	shrink int    // 0: the short form is the whole
	most   uint64 // MiB of memory that it may cost the server
	do     func(a *attacker)
}

// An attacker does it.
type attacker struct {
	*site
	conns, size int
	rate        int
	ready       func() // it has done its worst
	stop        chan struct{}

	mu       sync.Mutex
	next     time.Time         // when the next call may be made
	sessions map[string]uint64 // epochs of those that it has
}

// begin begins an attack, or what is harmless, and returns when it has done its worst. end ends
// it, and returns when it is gone.
func (s *site) begin(conns, rate, size int, do func(*attacker)) (end func()) {
	s.Helper()
	ready, gone := make(chan struct{}), make(chan struct{})
	a := &attacker{
		site: s, conns: conns, rate: rate, size: size,
		ready: sync.OnceFunc(func() { close(ready) }), stop: make(chan struct{}),
		sessions: make(map[string]uint64),
	}
	go func() {
		defer close(gone)
		do(a)
	}()
	safety := time.NewTimer(patience)
	defer safety.Stop()
	select {
	case <-ready:
	case <-gone:
	case <-safety.C:
		s.Errorf("the attacker has not done its worst in %s", patience)
	}
	return func() {
		close(a.stop)
		<-gone
		a.leave()
	}
}

// over reports whether the attack is to end.
func (a *attacker) over() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// pace waits until n more calls are within the rate. It reports false if the attack is to end.
func (a *attacker) pace(n int) bool {
	a.mu.Lock()
	now := time.Now()
	if a.next.Before(now) {
		a.next = now
	}
	wait := a.next.Sub(now)
	a.next = a.next.Add(time.Duration(n) * time.Second / time.Duration(a.rate))
	a.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.stop:
		return false
	}
}

// dial connects, without a bound in time.
func (a *attacker) dial() *rawwire.Conn {
	a.Helper()
	c, err := rawwire.Dial(a.address, a.secret)
	if err != nil {
		a.Errorf("an attacker: %v", err)
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return c
}

// each does something at once for each connection.
func (a *attacker) each(do func(n int, c *rawwire.Conn)) {
	var running sync.WaitGroup
	for n := range a.conns {
		c := a.dial()
		if c == nil {
			break
		}
		running.Go(func() {
			defer c.Close()
			do(n, c)
		})
	}
	running.Wait()
}

// counted returns a function that has the attack be ready when it was called for each connection.
func (a *attacker) counted() func() {
	var mu sync.Mutex
	left := a.conns
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			a.ready()
		}
	}
}

// client is a client of the attacker's. end ends its session.
func (a *attacker) client() (c *lockkeeper.Client, end func()) {
	a.Helper()
	file, err := os.CreateTemp("", "secret")
	if err == nil {
		defer os.Remove(file.Name())
		_, err = file.WriteString(a.secret)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		a.Error(err)
		return nil, func() {}
	}
	e, err := remote.Open(context.Background(), "lk://"+a.address+"?token="+file.Name())
	if err != nil {
		a.Error(err)
		return nil, func() {}
	}
	c = lockkeeper.New(e, lockkeeper.SessionTTL(time.Minute))
	return c, func() {
		if err := c.Close(); err != nil && !errors.Is(err, lockkeeper.ErrUnavailable) {
			a.Error(err)
		}
		e.Close()
	}
}

// attach attaches a session, which leaves when the attack has ended.
func (a *attacker) attach(c *rawwire.Conn, session string) (epoch uint64, ok bool) {
	a.Helper()
	reply, err := c.One(rawwire.Attach(session, 10*time.Minute))
	if err != nil {
		if !a.over() {
			a.Errorf("session %s: %v", session, err)
		}
		return 0, false
	}
	_ = c.SetDeadline(time.Time{})
	epoch = reply.GetLease().GetEpoch()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions[session] = epoch
	return epoch, true
}

// leave ends the sessions of the attack, so that the next one finds the server as this one did.
func (a *attacker) leave() {
	c := a.dial()
	if c == nil {
		return
	}
	defer c.Close()
	for session, epoch := range a.sessions {
		// One that has left already is no session any more.
		_, _ = c.One(rawwire.End(session, epoch, &lockkeeper.Ending{Kind: lockkeeper.Leave}))
	}
}

// harmless is the neighbour that attacks are compared with: it locks and releases paths of its
// own, some at a time if its rate is high.
func harmless(a *attacker) {
	const most = 100 // sessions
	ready := a.counted()
	pairs := max(1, a.rate/2/min(a.conns, most)/100)
	a.each(func(n int, c *rawwire.Conn) {
		if n >= most {
			ready()
			<-a.stop
			return
		}
		session := fmt.Sprint("harmless", n)
		epoch, ok := a.attach(c, session)
		if !ok {
			return
		}
		ready()
		for id := uint64(0); a.rate > 0 && a.pace(2*pairs); id += uint64(pairs) {
			for i := range uint64(pairs) {
				c.Put(rawwire.Claim(session, epoch, id+i+1, fmt.Sprint("a/", n, "/", i), 0))
				c.Put(rawwire.Release(session, epoch, id+i+1))
			}
			if _, err := c.All(2 * pairs); err != nil {
				a.Error(err)
				return
			}
		}
		<-a.stop
	})
}

// compare measures the victim beside a harmless neighbour and beside the attack.
func (s *site) compare(at *attack, size, pairs int) (beside, attacked latency, used uses) {
	s.Helper()
	end := s.begin(at.conns, at.rate, size, harmless)
	s.measure(pairs / 4)
	beside = s.measure(pairs)
	end()
	end = s.begin(at.conns, at.rate, size, at.do)
	used = s.uses()
	attacked = s.measure(pairs)
	used = used.worst(s.uses())
	end()
	return beside, attacked, used
}

// check fails the test if the server has used more than it may.
func (s *site) check(at *attack, before, used uses) {
	s.Helper()
	if most := before.memory + at.most<<20; used.memory > most {
		s.Errorf("%s: the server uses %d MiB, want at most %d", at.name, used.memory>>20, most>>20)
	}
	bounds := map[string][2]int{
		"watchers":             {used.watchers, 256},
		"undelivered statuses": {used.undelivered, 1 << 15},
		"unread bytes":         {used.unsent, 64 << 20},
		"claims":               {used.claims, 100_000 + 101},
		"sessions":             {used.sessions, 1001},
		"connections":          {used.connections, 4096 + 1},
		"HTTP connections":     {used.web, 2},
	}
	for what, bound := range bounds {
		if bound[0] > bound[1] {
			s.Errorf("%s: %d %s count, want at most %d", at.name, bound[0], what, bound[1])
		}
	}
	if used.sessions == 0 {
		s.Errorf("%s: the victim's session is gone", at.name)
	}
}

// Whatever one identity does within its bounds, another one loses nothing, and what the server
// uses is bounded.
func TestAttacksHarmNobodyElse(t *testing.T) {
	for i := range attacks {
		at := &attacks[i]
		t.Run(at.name, func(t *testing.T) {
			s := newSite(t)
			before := s.uses()
			beside, attacked, used := s.compare(at, at.size/max(at.shrink, 1), 300)
			s.check(at, before, used)
			t.Logf("p99 of a lock and its release: %s beside it, %s beside a harmless neighbour, ratio %.1f; the longest: %s "+
				"and %s; the server uses %+v",
				attacked.p99, beside.p99, ratio(attacked, beside), attacked.max, beside.max, used)
		})
	}
}

func ratio(attacked, beside latency) float64 { return float64(attacked.p99) / float64(beside.p99) }

// readUntilClosed reads what comes until the server hangs up.
func readUntilClosed(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// drained reads what comes in the background, so that the server is not held up.
func drained(c net.Conn) { go readUntilClosed(c) }

// isQuota reports whether an answer is the refusal of a quota.
func isQuota(m *wire.Reply) bool { return m.GetError().GetReason() == wire.Reason_REASON_QUOTA }
