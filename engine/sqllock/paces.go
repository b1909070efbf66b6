package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// paces are those that this process has read or written lately. Only estimates depend
// on them, so it does no harm that others write them too. They are safe for concurrent use.
type paces struct {
	mu         sync.Mutex
	young, old map[lockkeeper.Path]knownPace // when there are many young, they are the old
}

// knownPace is what is known of one path.
type knownPace struct {
	row  table.HoldTimeRecord // as the rows have it, about; without a path: there is none
	last table.HoldTimeRecord // as it was after the latest hold that ended here
	read time.Time
}

const (
	mostPaces = 4 * table.MaxHoldTimes
	freshPace = time.Minute // after that it is read again
)

func newPaces() *paces { return &paces{young: make(map[lockkeeper.Path]knownPace)} }

// known yields what is known of paths, and returns those that have to be read.
func (p *paces) known(paths map[lockkeeper.Path]bool, keep func(table.HoldTimeRecord)) (others []lockkeeper.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for path := range paths { // order does not matter: sorted below
		k, known := p.get(path)
		switch {
		case !known || now.Sub(k.read) > freshPace:
			others = append(others, path)
		case k.last.Path != "":
			keep(k.last)
		}
	}
	slices.Sort(others)
	return others
}

func (p *paces) get(path lockkeeper.Path) (k knownPace, known bool) {
	if k, known = p.young[path]; known {
		return k, true
	}
	if k, known = p.old[path]; known {
		p.put(path, k)
	}
	return k, known
}

func (p *paces) put(path lockkeeper.Path, k knownPace) {
	if len(p.young) >= mostPaces/2 {
		p.old, p.young = p.young, make(map[lockkeeper.Path]knownPace)
	}
	p.young[path] = k
}

// heard takes in what was read of paths: found, and of the others that there is nothing.
func (p *paces) heard(paths []lockkeeper.Path, found map[lockkeeper.Path]table.HoldTimeRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, path := range paths {
		p.put(path, knownPace{found[path], found[path], now})
	}
}

// moved reports whether r is to be written.
func (p *paces) moved(r *table.HoldTimeRecord) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _ := p.get(r.Path)
	return k.row.Path == "" && !r.Forgotten || rows.HoldTimeMoved(&k.row, r)
}

// learn takes in paces that are new, and those of them that were written.
func (p *paces) learn(all, written []table.HoldTimeRecord) {
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
