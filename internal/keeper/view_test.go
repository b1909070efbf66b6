package keeper

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// viewed is a View whose table the test steps, as a node of a cluster does.
type viewed struct {
	*testing.T
	*View
	table    *table.Table
	notified map[string]int // statuses by the session, and its losses of all under "lost SESSION"
}

func newViewed(t *testing.T) *viewed {
	start := time.Now()
	v := &viewed{
		T:        t,
		View:     NewView(func() time.Duration { return time.Since(start) }),
		table:    table.New(),
		notified: make(map[string]int),
	}
	v.Lock()
	defer v.Unlock()
	v.Show(v.table)
	return v
}

// step gives the table a command, of a caller of this process if here is set.
func (v *viewed) step(c table.Command, here bool) table.Reply {
	v.Lock()
	defer v.Unlock()
	c.At = v.table.Now()
	reply, err := v.table.Step(&c)
	if err != nil {
		v.Error(err)
	}
	s := Step{Table: v.table, Command: &c, Reply: reply, Refused: err, Replied: here}
	if session := c.Session.ID; here && c.Op == table.Attach {
		s.Notify = func(all []lockkeeper.Status) {
			name := session
			if all == nil {
				name = "lost " + name
			}
			v.notified[name] += max(len(all), 1)
		}
	}
	v.Applied(s)
	return reply
}

func (v *viewed) attach(id string, epoch uint64, here bool) lockkeeper.Key {
	s := lockkeeper.Session{ID: id, TTL: time.Hour, Epoch: epoch}
	return v.step(table.Command{Op: table.Attach, Session: s}, here).Lease.Key
}

func (v *viewed) claim(k lockkeeper.Key, id uint64, here bool) {
	w := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever}
	w.Targets = []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}
	v.step(table.Command{Op: table.Claim, Key: k, Want: w}, here)
}

func (v *viewed) release(k lockkeeper.Key, id uint64, here bool) {
	e := lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}
	v.step(table.Command{Op: table.End, Key: k, Ending: e}, here)
}

// want checks how often the session was notified since the last check.
func (v *viewed) want(session string, n int) {
	v.Helper()
	if v.notified[session] != n {
		v.Errorf("%s was notified %d times, want %d", session, v.notified[session], n)
	}
	delete(v.notified, session)
}

func TestViewNotifiesSessionsOfStepsOfOtherProcesses(t *testing.T) {
	v := newViewed(t)
	ann, bob := v.attach("ann", 0, false), v.attach("bob", 0, true)
	v.claim(ann, 1, false)
	v.claim(bob, 1, true)
	v.want("bob", 0) // the reply says that it waits
	v.release(ann, 1, false)
	v.want("bob", 1)
	v.release(bob, 1, false) // by a copy of the key at another process
	v.want("bob", 1)
}

func TestViewForgetsASessionThatIsTakenOverElsewhere(t *testing.T) {
	v := newViewed(t)
	ann, bob := v.attach("ann", 0, true), v.attach("bob", 0, true)
	v.claim(ann, 1, true)
	v.claim(bob, 1, true)
	bob = v.attach("bob", bob.Epoch, false)
	v.want("bob", 1) // its claim was not named, so it ended with the takeover
	v.claim(bob, 2, false)
	v.release(ann, 1, true)
	v.want("bob", 0)
	bob = v.attach("bob", bob.Epoch, true)
	v.claim(bob, 3, false)
	v.want("bob", 1)
}

// Nobody knows what changed between two tables of which one replaces the other.
func TestViewOfAReplacedTableInterruptsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		ann := v.attach("ann", 0, true)
		ended := make(chan error, 1)
		go func() {
			for _, err := range v.List(t.Context(), lockkeeper.Query{Follow: true}) {
				if err != nil {
					ended <- err
				}
			}
		}()
		synctest.Wait()
		v.claim(ann, 1, true)
		later, err := table.Restore(v.table.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		v.Lock()
		v.Show(later)
		v.Unlock()
		v.want("lost ann", 1)
		if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("the watcher ended with %v", err)
		}
		n := 0
		for _, err := range v.List(t.Context(), lockkeeper.Query{}) {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if n != 1 {
			t.Errorf("the list of the later table has %d claims, want 1", n)
		}
		v.Close()
		for _, err := range v.List(t.Context(), lockkeeper.Query{}) {
			if !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("a list after Close: %v", err)
			}
		}
	})
}
