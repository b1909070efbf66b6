package keeper_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// slowLog is a log that makes entries safe when it is told to. It keeps a table of
// what is safe, made by replay.
type slowLog struct {
	mu      sync.Mutex
	entries []table.Command
	commits []*keeper.Commit // of the entries that are not safe
	safe    *table.Table
	broken  error
	failed  chan struct{} // closed when it is broken
	refuses bool          // what relies on it
	stuck   chan struct{} // closed while it does
}

func newSlowLog() *slowLog {
	return &slowLog{safe: table.New(), failed: make(chan struct{}), stuck: make(chan struct{})}
}

// refuse begins or ceases to refuse what relies on it.
func (l *slowLog) refuse(refuses bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses = refuses; refuses {
		close(l.stuck)
	} else {
		l.stuck = make(chan struct{})
	}
}

func (l *slowLog) Stuck() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck
}

// Safe returns a table that must not change while it is read: nothing is synced meanwhile.
func (l *slowLog) Safe(context.Context) (*table.Table, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.safe, nil
}

func (l *slowLog) StartCommit() {}

func (l *slowLog) Failed() <-chan struct{} { return l.failed }

func (l *slowLog) Admit(relies bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses && relies {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "no room"}
	}
	return l.broken
}

func (l *slowLog) Append(c *table.Command, _ table.Counters) *keeper.Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := *c
	entry.Want.Targets, entry.Session.Named = slices.Clone(c.Want.Targets), slices.Clone(c.Session.Named)
	l.entries = append(l.entries, entry)
	commit := keeper.NewCommit()
	if l.broken != nil {
		commit.End(l.broken)
		return commit
	}
	l.commits = append(l.commits, commit)
	return commit
}

// sync makes the oldest n entries that are not safe safe; all of them if n is negative.
func (l *slowLog) sync(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > len(l.commits) {
		n = len(l.commits)
	}
	first := len(l.entries) - len(l.commits)
	for i := range n {
		if _, err := l.safe.Step(&l.entries[first+i]); err != nil {
			panic(fmt.Sprintf("entry %d is refused at replay: %v", first+i, err))
		}
		l.commits[i].End(nil)
	}
	l.commits = l.commits[n:]
}

// fail fails all that is not safe, and all that comes.
func (l *slowLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
		for _, c := range l.commits {
			c.End(err)
		}
		l.commits = nil
		close(l.failed)
	}
}

// changes is the latest change that is safe.
func (l *slowLog) changes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.safe.Counters().Changes
}

// epochs is the latest epoch that is safe.
func (l *slowLog) epochs() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.safe.Counters().Epochs
}

func logged(t *testing.T, l *slowLog) *keeper.Keeper {
	start := time.Now()
	g := lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures}
	k := keeper.NewLogged(g, func() time.Duration { return time.Since(start) }, table.New(), l)
	t.Cleanup(func() { k.Close() })
	return k
}
