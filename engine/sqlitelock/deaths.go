package sqlitelock

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// mostWatchers bounds the threads of this process that wait in the kernel, one for each file. A
	// daemon that has inherited a file may keep it locked forever.
	mostWatchers = 64
	// mostWatching bounds the waiting claims whose blockers are watched: the longest waits. Claims
	// behind them mostly wait for the same holders, or for them. For all other blockers the engine
	// asks the kernel every pollWatching.
	mostWatching = 32
)

// watchDeaths makes the kernel report the death of a process that blocks a claim of this process,
// by its lock on the session file.
func (e *Engine) watchDeaths() {
	if len(e.waits) == 0 || e.cache == nil || !kernelKnows || e.db.options.polls || !e.othersFiled() {
		return
	}
	waits := e.sortedWaits()
	e.blockers(waits[:min(len(waits), mostWatching)], e.watchDeath)
}

// askForDeaths asks the kernel for the deaths of blockers that are not watched.
func (e *Engine) askForDeaths() {
	if len(e.waits) == 0 || e.cache == nil || !kernelKnows || !e.othersFiled() {
		return
	}
	now, err := e.clock()
	if err != nil || now >= e.askedAt && now < e.askedAt+pollWatching {
		return
	}
	e.askedAt = now
	asked := make(map[string]bool)
	e.blockers(e.sortedWaits(), func(id, file string) {
		if !asked[file] && !watchedFiles.watchedBy(e.folder.file(file), e) && e.folder.state(file) == fileFree {
			e.dead[id] = true
		}
		asked[file] = true
	})
}

// blockers calls do for each session with a file of another process that blocks one of these
// claims.
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

// sortedWaits returns the waiting claims of this process in the order of their tickets.
func (e *Engine) sortedWaits() []lockkeeper.Ref {
	refs := make([]lockkeeper.Ref, 0, len(e.waits))
	for ref := range e.waits {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b lockkeeper.Ref) int { return cmp.Compare(e.waits[a], e.waits[b]) })
	return refs
}

// watchDeath makes the kernel report when nobody has the session file locked any more.
func (e *Engine) watchDeath(id, file string) {
	watchedFiles.watch(e.folder, file, e, id)
}

// died records that nobody has the session file locked any more. The rows say whether the file is
// still that of the session.
func (e *Engine) died(id string) {
	e.mu.Lock()
	e.freed = append(e.freed, id)
	e.mu.Unlock()
	select {
	case e.deaths <- struct{}{}:
	default:
	}
}

// takeDeaths moves the sessions that died has recorded to dead.
func (e *Engine) takeDeaths() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.freed {
		e.dead[id] = true
	}
	e.freed = nil
}

// watchedFiles are the files that this process waits for.
var watchedFiles = watches{files: make(map[string]map[*Engine]string)}

// watches are session files, each with a thread that waits in the kernel until nobody has the file
// locked. Nothing can interrupt such a wait. So there is one for each file, shared by all engines
// of the process, and it may outlive them.
type watches struct {
	mu    sync.Mutex
	files map[string]map[*Engine]string // by path: the engines to notify, and the session of each
}

// watch makes died report the session when nobody has the file of that name locked any more. It
// does nothing if too many files are watched, or if the file is gone, which proves nothing.
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

// watchedBy reports whether e waits for the file at path.
func (w *watches) watchedBy(path string, e *Engine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, found := w.files[path][e]
	return found
}

// forget removes e, which is closed.
func (w *watches) forget(e *Engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, engines := range w.files {
		delete(engines, e)
	}
}
