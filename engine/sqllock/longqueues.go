package sqllock

import (
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// longQueues remembers at which paths many claims of any process wait, so that transactions read
// only prefixes there. If it is wrong, transactions only take more round trips. It is safe for
// concurrent use.
type longQueues struct {
	mu sync.Mutex
	at map[lockkeeper.Path]longQueue
}

type longQueue struct {
	until     time.Time
	exclusive bool // a claim of it waits for the path exclusively
}

const (
	longLasts      = 10 * time.Second
	mostLongQueues = 1024
)

// known reports whether a queue at one of these paths is long, and whether it may admit several
// claims at once.
func (l *longQueues) known(paths map[lockkeeper.Path]bool) (long, concurrent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) == 0 {
		return false, false
	}
	now := time.Now()
	for path := range paths { // order does not matter
		if found, any := l.at[path]; any && now.Before(found.until) {
			long, concurrent = true, concurrent || !found.exclusive
		}
	}
	return long, concurrent
}

// update records what a committed transaction has read.
func (l *longQueues) update(tx *transaction) {
	waiting := make(map[lockkeeper.Path]int)
	for _, found := range tx.view.claims { // order does not matter
		if class := classOf(found); class == classHard || class == classSoft {
			for _, t := range found.Want.Targets {
				waiting[t.Path]++
			}
		}
	}
	for i := range tx.view.prefixEnds { // order does not matter
		waiting[tx.regions[i].path] += tx.scope.prefix // or more
	}
	for path, n := range waiting { // order does not matter
		if n > tx.scope.prefix {
			l.note(path, !tx.scope.concurrent && readExclusive(tx.view.claims, path))
		}
	}
}

// note records that the queue at path is long.
func (l *longQueues) note(path lockkeeper.Path, exclusive bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil || len(l.at) >= mostLongQueues {
		l.at = make(map[lockkeeper.Path]longQueue)
	}
	l.at[path] = longQueue{time.Now().Add(longLasts), exclusive}
}

// readExclusive reports whether a claim that was read waits for path exclusively.
func readExclusive(claims map[lockkeeper.Ref]*rows.Claim, path lockkeeper.Path) bool {
	for _, c := range claims {
		if classOf(c) == classHard && waitsExclusively(c.Want.Targets, path) {
			return true
		}
	}
	return false
}

// waitsExclusively reports whether targets are the one path, exclusively.
func waitsExclusively(targets []lockkeeper.Target, path lockkeeper.Path) bool {
	return len(targets) == 1 && targets[0].Path == path && targets[0].Mode == lockkeeper.ModeExclusive
}
