package sqllock

import (
	"cmp"
	"os"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// mostWatchers bounds the threads that wait in the kernel, one each.
	mostWatchers = 64
	// mostWatching bounds the waiting claims of this process whose blockers are
	// watched: those that wait for the longest. Those behind mostly wait for the
	// same holders, or for them; for where they don't, the kernel is asked every
	// pollBehindBell.
	mostWatching = 32
)

// watchDeaths sees to it that the death of a process in whose session's way
// claims of this process wait is noticed at once. The kernel tells it by
// letting go of the lock on the session's file.
func (e *Engine) watchDeaths() {
	if len(e.waits) == 0 || e.cache == nil || !kernelKnows || !e.othersFiled() {
		return
	}
	waits := e.sortedWaits()
	e.blockers(waits[:min(len(waits), mostWatching)], e.watchDeath)
}

// askForDeaths asks the kernel for the processes in the way of those waiting
// claims that nobody watches for.
func (e *Engine) askForDeaths() {
	now, err := e.clock()
	if len(e.waits) <= mostWatching || e.cache == nil || !kernelKnows || err != nil ||
		now >= e.askedAt && now < e.askedAt+pollBehindBell {
		return
	}
	e.askedAt = now
	asked := make(map[string]bool)
	e.blockers(e.sortedWaits()[mostWatching:], func(id, file string) {
		if !asked[file] && e.folder.state(file) == fileFree {
			e.dead[id] = true
		}
		asked[file] = true
	})
}

// blockers calls do for each session of another process that has a file and is in
// the way of one of those waiting claims.
func (e *Engine) blockers(waits []lockkeeper.Ref, do func(id, file string)) {
	for _, ref := range waits {
		st, _ := e.cache.table.Explain(ref)
		for _, by := range st.Blockers {
			id := by.Ref.Session
			if s, open := e.cache.sessions[id]; open && s.file != "" && e.local[id] == nil {
				do(id, s.file)
			}
		}
	}
}

// sortedWaits are the waiting claims of this process in the order of their tickets.
func (e *Engine) sortedWaits() []lockkeeper.Ref {
	refs := make([]lockkeeper.Ref, 0, len(e.waits))
	for ref := range e.waits {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b lockkeeper.Ref) int { return cmp.Compare(e.waits[a], e.waits[b]) })
	return refs
}

// watchDeath waits, beside all else, until nobody has the session's file locked.
// That the waiting has become needless is no reason to end it: nothing can end
// it but the kernel. There is one such wait for each file.
func (e *Engine) watchDeath(id, file string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	path := e.folder.file(file)
	if e.watched[file] || len(e.watched) >= mostWatchers || path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return // removed: that proves nothing, and the TTL stands behind
	}
	e.watched[file] = true
	go func() {
		err := awaitFree(f)
		f.Close()
		e.mu.Lock()
		delete(e.watched, file)
		e.mu.Unlock()
		if err != nil {
			return
		}
		// The rows say whether that file is still the session's.
		select {
		case e.deaths <- id:
		case <-e.closing:
		}
	}()
}
