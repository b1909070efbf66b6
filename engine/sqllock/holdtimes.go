package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// holdTimes caches the hold-time estimates that this process has read or written recently. Only
// estimates of waits depend on them, so other processes may change them meanwhile. It is safe for
// concurrent use.
type holdTimes struct {
	mu         sync.Mutex
	young, old map[lockkeeper.Path]knownHoldTime // put makes a full young the next old
}

// knownHoldTime is the cache entry of one path.
type knownHoldTime struct {
	row  table.HoldTimeRecord // roughly as in its row; without a path: there is no row
	last table.HoldTimeRecord // after the latest hold that ended here
	read time.Time
}

const (
	mostHoldTimes = 4 * table.MaxHoldTimes
	holdTimeFresh = time.Minute // after that its row is read again
)

func newHoldTimes() *holdTimes { return &holdTimes{young: make(map[lockkeeper.Path]knownHoldTime)} }

// known passes the estimates of paths to keep, and returns the paths that have to be read.
func (p *holdTimes) known(paths map[lockkeeper.Path]bool, keep func(table.HoldTimeRecord)) (others []lockkeeper.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for path := range paths { // order does not matter: sorted below
		k, known := p.get(path)
		switch {
		case !known || now.Sub(k.read) > holdTimeFresh:
			others = append(others, path)
		case k.last.Path != "":
			keep(k.last)
		}
	}
	slices.Sort(others)
	return others
}

func (p *holdTimes) get(path lockkeeper.Path) (k knownHoldTime, known bool) {
	if k, known = p.young[path]; known {
		return k, true
	}
	if k, known = p.old[path]; known {
		p.put(path, k)
	}
	return k, known
}

func (p *holdTimes) put(path lockkeeper.Path, k knownHoldTime) {
	if len(p.young) >= mostHoldTimes/2 {
		p.old, p.young = p.young, make(map[lockkeeper.Path]knownHoldTime)
	}
	p.young[path] = k
}

// fill records that the rows of paths were read; paths that are not in found have none.
func (p *holdTimes) fill(paths []lockkeeper.Path, found map[lockkeeper.Path]table.HoldTimeRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, path := range paths {
		p.put(path, knownHoldTime{found[path], found[path], now})
	}
}

// moved reports whether the row of r must be written.
func (p *holdTimes) moved(r *table.HoldTimeRecord) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _ := p.get(r.Path)
	return k.row.Path == "" && !r.Forgotten || rows.HoldTimeMoved(&k.row, r)
}

// update records new estimates, and which of them were written.
func (p *holdTimes) update(all, written []table.HoldTimeRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range all {
		k, known := p.get(r.Path)
		if !known {
			k.read = time.Now()
		}
		k.last = r
		p.put(r.Path, k)
	}
	for _, r := range written {
		k, _ := p.get(r.Path)
		k.row = r
		p.put(r.Path, k)
	}
}
