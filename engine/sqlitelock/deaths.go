package sqlitelock

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// mostWatchers bounds the threads of this process that wait in the kernel, one
	// for each file. Daemons that have inherited files may keep them for ever.
	mostWatchers = 64
	// mostWatching bounds the waiting claims of this process whose blockers are
	// watched: those that wait for the longest. Those behind mostly wait for the
	// same holders, or for them. For all blockers that are not watched the kernel is
	// asked every pollBehindBell.
	mostWatching = 32
)

// watchDeaths sees to it that the death of a process in whose session's way
// claims of this process wait is noticed at once. The kernel tells it by
// letting go of the lock on the session's file.
func (e *Engine) watchDeaths() {
	if len(e.waits) == 0 || e.cache == nil || !kernelKnows || e.db.options.polls || !e.othersFiled() {
		return
	}
	waits := e.sortedWaits()
	e.blockers(waits[:min(len(waits), mostWatching)], e.watchDeath)
}

// askForDeaths asks the kernel for those processes in the way of waiting claims
// that are not watched.
func (e *Engine) askForDeaths() {
	if len(e.waits) == 0 || e.cache == nil || !kernelKnows || !e.othersFiled() {
		return
	}
	now, err := e.clock()
	if err != nil || now >= e.askedAt && now < e.askedAt+pollBehindBell {
		return
	}
	e.askedAt = now
	asked := make(map[string]bool)
	e.blockers(e.sortedWaits(), func(id, file string) {
		if !asked[file] && !watchedFiles.tells(e.folder.file(file), e) && e.folder.state(file) == fileFree {
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
			if s, open := e.cache.sessions[id]; open && s.file != "" && e.local.Get(id) == nil {
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

// watchDeath sees to it that the engine is told when nobody has the session's
// file locked any more.
func (e *Engine) watchDeath(id, file string) {
	watchedFiles.watch(e.folder, file, e, id)
}

// died notes that nobody has the session's file locked any more. The rows say
// whether that file is still the session's.
func (e *Engine) died(id string) {
	e.mu.Lock()
	e.told = append(e.told, id)
	e.mu.Unlock()
	select {
	case e.deaths <- struct{}{}:
	default:
	}
}

// hearDeaths takes in the sessions of which died told.
func (e *Engine) hearDeaths() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.told {
		e.dead[id] = true
	}
	e.told = nil
}

// watchedFiles are the files that this process waits for.
var watchedFiles = watches{files: make(map[string]map[*Engine]string)}

// watches are session files until whose locks are gone a thread each waits in the
// kernel. Nothing can end such a wait but the kernel, not even that nobody wants
// to know any more. So there is one for each file, whichever engines of this
// process wait for it, and it outlives them.
type watches struct {
	mu    sync.Mutex
	files map[string]map[*Engine]string // by path: who is to be told, of which session
}

// watch has e told of the session when nobody has its file in that folder locked any
// more; unless too many are watched, or it is gone, which proves nothing.
func (w *watches) watch(in *folder, name string, e *Engine, session string) {
	path := in.file(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if engines, watched := w.files[path]; watched {
		engines[e] = session
		return
	}
	if len(w.files) >= mostWatchers {
		return
	}
	f, err := in.find(name, os.O_RDONLY)
	if err != nil {
		return
	}
	w.files[path] = map[*Engine]string{e: session}
	go func() {
		err := awaitFree(f)
		f.Close()
		w.mu.Lock()
		engines := w.files[path]
		delete(w.files, path)
		w.mu.Unlock()
		if err != nil {
			return
		}
		for e, session := range engines {
			e.died(session)
		}
	}()
}

// tells reports whether e will be told of the file at path.
func (w *watches) tells(path string, e *Engine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, told := w.files[path][e]
	return told
}

// forget has e, which is closed, told of nothing any more.
func (w *watches) forget(e *Engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, engines := range w.files {
		delete(engines, e)
	}
}
