package neighbours

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rawwire"
)

// attacks are all that are known. Rates are what one attacker reaches on a small machine.
var attacks = []attack{
	{name: "watchers of its own session that read nothing", conns: 8, rate: 2000, size: 16_000, shrink: 8, most: 150,
		do: unreadWatchers},
	{name: "watchers of everything that read nothing", conns: 100, rate: 2000, size: 4000, shrink: 4, most: 150,
		do: deafWatchers},
	{name: "watchers of nothing", conns: 500, size: 64, shrink: 4, most: 50, do: watchersOfNothing},
	{name: "announced frames", conns: 200, rate: 400, most: 50, do: announcedFrames},
	{name: "stalled frames", conns: 200, rate: 400, most: 100, do: stalledFrames},
	{name: "thieves of permits", conns: 1, size: 450, shrink: 10, most: 50, do: thieves},
	{name: "thieves of many paths", conns: 1, size: 80, shrink: 10, most: 50, do: thievesOfMany},
	{name: "soft waiters", conns: 1, size: 480, shrink: 10, most: 50, do: softWaiters},
	{name: "departures of large sessions", conns: 1, rate: 20_000, size: 10_000, shrink: 10, most: 100, do: departures},
	{name: "a long line", conns: 10, rate: 2000, size: 10_000, shrink: 10, most: 250, do: longLine},
	{name: "many claims", conns: 10, rate: 2000, size: 10_000, shrink: 10, most: 350, do: manyClaims},
	{name: "connections that come and go", conns: 200, rate: 1000, most: 50, do: churn},
	{name: "HTTP connections without credentials", conns: 2000, rate: 1000, most: 100, do: floodHTTP},
	{name: "answers that are not read", conns: 20, rate: 20_000, most: 150, do: unreadAnswers},
	{name: "frames of tiny requests, whose answers are not read", conns: 200, rate: 100_000, most: 150, do: tinyRequests},
	{name: "one byte at a time", conns: 100, rate: 1000, most: 50, do: drip},
	{name: "too large frames", conns: 50, rate: 500, most: 50, do: tooLargeFrames},
	{name: "garbage", conns: 50, rate: 500, most: 50, do: garbage},
	{name: "very many lists", conns: 4, rate: 20_000, most: 100, do: veryManyLists},
	{name: "silent connections", conns: 1000, rate: 1000, most: 50, do: silent},
}

// watches are requests for n watchers of a session, with credit for one status.
func watches(c *rawwire.Conn, session string, n int) {
	for range n {
		c.Put(rawwire.List(lockkeeper.Query{Session: session, Follow: true}, 1))
	}
}

// fails sends claims of one path, all but the first of which end at once; size of them make it
// ready, and then it goes on at its rate.
func fails(a *attacker, session string) {
	main := a.dial()
	if main == nil {
		return
	}
	defer main.Close()
	epoch, ok := a.attach(main, session)
	if !ok {
		return
	}
	drained(main)
	note := strings.Repeat("n", 500)
	const batch = 50
	for id := uint64(1); id <= uint64(a.size) || a.pace(batch); {
		for range batch {
			m := rawwire.Claim(session, epoch, id, "a/z", 0)
			m.LowestOpen = max(id, 200) - 200
			m.GetClaim().Note = note
			main.Put(m)
			id++
		}
		if err := main.Send(); err != nil {
			a.Error(err)
			return
		}
		if id > uint64(a.size) {
			a.ready()
		}
		if a.over() {
			return
		}
	}
}

func unreadWatchers(a *attacker) {
	go fails(a, "own")
	a.each(func(_ int, c *rawwire.Conn) {
		watches(c, "own", 64)
		if err := c.Send(); err != nil {
			a.Error(err)
		}
		<-a.stop
	})
}

func deafWatchers(a *attacker) {
	go fails(a, "own")
	a.each(func(_ int, c *rawwire.Conn) {
		c.Put(rawwire.List(lockkeeper.Query{Follow: true}, 1<<31))
		if err := c.Send(); err != nil {
			a.Error(err)
		}
		<-a.stop
	})
}

func watchersOfNothing(a *attacker) {
	ready := a.counted()
	a.each(func(_ int, c *rawwire.Conn) {
		watches(c, "nobody", a.size)
		if err := c.Send(); err != nil {
			a.Error(err)
		}
		drained(c)
		ready()
		<-a.stop
	})
}

// thieves want more permits than they can have from holders of 1, 2, 4, ... units.
func thieves(a *attacker) {
	a.steal(1, a.size)
}

func thievesOfMany(a *attacker) {
	a.steal(20, a.size)
}

func (a *attacker) steal(paths, thieves int) {
	c, end := a.client()
	if c == nil {
		return
	}
	defer end()
	ctx := context.Background()
	at := func(p int) string { return fmt.Sprint("a/p", p) }
	for p := range paths {
		for i := range 15 {
			if _, err := c.Acquire(ctx, lockkeeper.Permits(at(p), 1<<i, 40_000)); err != nil {
				a.Error(err)
				return
			}
		}
	}
	for i := range thieves {
		requests := []lockkeeper.Request{lockkeeper.WithPriority(1), lockkeeper.WithSteal()}
		for p := range paths {
			requests = append(requests, lockkeeper.Permits(at(p), 20_000, 33_000+i))
		}
		if _, err := c.Enqueue(ctx, requests...); err != nil {
			a.Errorf("thief %d: %v", i, err)
			break
		}
	}
	a.ready()
	<-a.stop
}

func softWaiters(a *attacker) {
	c, end := a.client()
	if c == nil {
		return
	}
	defer end()
	ctx := context.Background()
	if _, err := c.Lock(ctx, "a/q"); err != nil {
		a.Error(err)
		return
	}
	for i := range a.size {
		if _, err := c.Enqueue(ctx, lockkeeper.Exclusive("a/q"), lockkeeper.WithSoft(time.Millisecond)); err != nil {
			a.Errorf("waiter %d: %v", i, err)
			break
		}
	}
	a.ready()
	<-a.stop
}

// claimMany makes claims 1 to n, of the paths that path returns, some at a time.
func claimMany(c *rawwire.Conn, session string, epoch uint64, n int, wait time.Duration,
	path func(id int) string) error {
	const batch = 500
	for from := 1; from <= n; from += batch {
		to := min(from+batch, n+1)
		for id := from; id < to; id++ {
			c.Put(rawwire.Claim(session, epoch, uint64(id), path(id), wait))
		}
		if _, err := c.All(to - from); err != nil {
			return err
		}
	}
	return nil
}

// departures are of sessions with as many claims as are allowed.
func departures(a *attacker) {
	a.each(func(_ int, c *rawwire.Conn) {
		for round := 0; ; round++ {
			session := fmt.Sprint("large", round%2)
			epoch, ok := a.attach(c, session)
			if !ok {
				return
			}
			path := func(id int) string { return fmt.Sprint("a/m/", id%100, "/", id) }
			if err := claimMany(c, session, epoch, a.size, 0, path); err != nil {
				a.Error(err)
				return
			}
			leave := &lockkeeper.Ending{Kind: lockkeeper.Leave}
			if _, err := c.One(rawwire.End(session, epoch, leave)); err != nil {
				a.Error(err)
				return
			}
			a.ready()
			if !a.pace(a.size + 2) {
				return
			}
		}
	})
}

// longLine has sessions wait for one path, as many as may, and hand it on.
func longLine(a *attacker) {
	ready := a.counted()
	a.each(func(n int, c *rawwire.Conn) {
		session := fmt.Sprint("waiter", n)
		epoch, ok := a.attach(c, session)
		if !ok {
			return
		}
		path := func(int) string { return "a/hot" }
		if err := claimMany(c, session, epoch, a.size, lockkeeper.Forever, path); err != nil {
			a.Error(err)
			return
		}
		ready()
		for id := uint64(1); id <= uint64(a.size) && a.pace(1); id++ {
			if _, err := c.One(rawwire.Release(session, epoch, id)); err != nil {
				a.Error(err)
				return
			}
		}
		<-a.stop
	})
}

func manyClaims(a *attacker) {
	ready := a.counted()
	a.each(func(n int, c *rawwire.Conn) {
		session := fmt.Sprint("many", n)
		epoch, ok := a.attach(c, session)
		if !ok {
			return
		}
		path := func(id int) string { return fmt.Sprint("a/", n, "/", id%1000, "/", id) }
		if err := claimMany(c, session, epoch, a.size, 0, path); err != nil {
			a.Error(err)
			return
		}
		ready()
		for id := uint64(a.size); a.pace(2); id++ {
			if _, err := c.One(rawwire.Release(session, epoch, id)); err != nil {
				a.Error(err)
				return
			}
			if _, err := c.One(rawwire.Claim(session, epoch, id+1, path(int(id)), 0)); err != nil {
				a.Error(err)
				return
			}
		}
	})
}

// unreadAnswers asks for leases with many claims, and reads none.
func unreadAnswers(a *attacker) {
	ready := a.counted()
	a.each(func(n int, c *rawwire.Conn) {
		session := fmt.Sprint("deaf", n)
		epoch, ok := a.attach(c, session)
		if !ok {
			return
		}
		path := func(id int) string { return fmt.Sprint("a/", n, "/", id) }
		if err := claimMany(c, session, epoch, 20, lockkeeper.Forever, path); err != nil {
			a.Error(err)
			return
		}
		for sent := 0; a.pace(100); sent += 100 {
			if sent > 5000 {
				ready()
			}
			for range 100 {
				c.Put(rawwire.Renew(session, epoch))
			}
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if err := c.Send(); err != nil { // the server does not read any more, or has hung up
				break
			}
		}
		ready()
		<-a.stop
	})
}

// veryManyLists asks for lists without waiting for answers.
func veryManyLists(a *attacker) {
	ready := a.counted()
	a.each(func(_ int, c *rawwire.Conn) {
		go func() {
			const batch = 100
			for a.pace(batch) {
				for range batch {
					c.Put(rawwire.List(lockkeeper.Query{Session: "nobody"}, 1000))
				}
				if c.Send() != nil {
					return
				}
			}
			c.Close()
		}()
		for ended := 0; ; {
			f, err := c.Frame()
			if err != nil {
				if !a.over() {
					a.Error(err)
				}
				break
			}
			for _, m := range f.GetReplies() {
				if e := m.GetError(); e != nil && !isQuota(m) {
					a.Error(e.Read())
				}
				if !m.GetMore() {
					ended++
				}
			}
			if ended > 500 {
				ready()
				ended = -1 << 40
			}
		}
		<-a.stop
	})
}
