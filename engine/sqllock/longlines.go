package sqllock

import (
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// longLines remembers where many wait, of whatever process, so that their line is not read as if it
// were short. Nothing but the work depends on it: a line that has become short is read whole. It
// is safe for concurrent use.
type longLines struct {
	mu sync.Mutex
	at map[lockkeeper.Path]longLine
}

type longLine struct {
	until time.Time
	alone bool // they seem to wait one after the other
}

const (
	longLasts     = 10 * time.Second
	mostLongLines = 1024
)

// known reports whether many wait at one of these paths, and whether it may be that they do not wait
// one after the other.
func (l *longLines) known(paths map[lockkeeper.Path]bool) (long, apart bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) == 0 {
		return false, false
	}
	now := time.Now()
	for path := range paths { // order does not matter
		if found, any := l.at[path]; any && now.Before(found.until) {
			long, apart = true, apart || !found.alone
		}
	}
	return long, apart
}

// learn takes in what a transaction has read.
func (l *longLines) learn(tx *transaction) {
	waiting := make(map[lockkeeper.Path]int)
	for _, found := range tx.view.claims { // order does not matter
		if class := classOf(found); class == classHard || class == classSoft {
			for _, t := range found.Want.Targets {
				waiting[t.Path]++
			}
		}
	}
	for i := range tx.view.cuts { // order does not matter
		waiting[tx.regions[i].path] += tx.scope.head // there are as many, if not more
	}
	for path, n := range waiting { // order does not matter
		if n > tx.scope.head {
			l.note(path, !tx.scope.scattered && oneAlone(tx.view.claims, path))
		}
	}
}

func (l *longLines) note(path lockkeeper.Path, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil || len(l.at) >= mostLongLines {
		l.at = make(map[lockkeeper.Path]longLine)
	}
	l.at[path] = longLine{time.Now().Add(longLasts), alone}
}

// oneAlone reports whether one of those who wait waits for the path alone.
func oneAlone(claims map[lockkeeper.Ref]*rows.Claim, path lockkeeper.Path) bool {
	for _, c := range claims { // order does not matter: one is enough
		if classOf(c) == classHard && waitsAlone(c.Want.Targets, path) {
			return true
		}
	}
	return false
}

// waitsAlone reports whether targets are the path alone, exclusively.
func waitsAlone(targets []lockkeeper.Target, path lockkeeper.Path) bool {
	return len(targets) == 1 && targets[0].Path == path && targets[0].Mode == lockkeeper.ModeExclusive
}
