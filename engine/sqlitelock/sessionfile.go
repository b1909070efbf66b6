package sqlitelock

import (
	"maps"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// attachment is a session that this process has attached.
type attachment struct {
	epoch  uint64 // 0: it is not known whether the attach was committed
	notify func([]lockkeeper.Status)
	file   *os.File      // locked; nil if the session lives by its TTL alone
	name   string        // of file, in the folder; "" if there is none
	ttl    time.Duration // what the attach promised
}

// fileless counts a as 1 if it lives by its TTL alone.
func (a *attachment) fileless() int {
	if a == nil || a.file != nil {
		return 0
	}
	return 1
}

// fileFor returns the attachment of a session of this process, with a file of
// its own. A session that is attached again keeps its file: children have it. One that has ended
// and begins again gets another: the old one goes with the end, which may be in this transaction.
func (e *Engine) fileFor(id string) (*attachment, error) {
	a := e.local[id]
	if a != nil && a.file != nil && e.cache.sessions[id].file == a.name && e.folder.leadsTo(a.name, a.file) {
		return a, nil
	}
	f, name, err := e.folder.create()
	if err != nil {
		return nil, err
	}
	e.bell.watch(e.folder.file(name))
	e.detach(id)
	// Should the commit be uncertain, the session lives as long as this is here.
	return e.keep(id, &attachment{file: f, name: name}), nil
}

func (e *Engine) keep(id string, a *attachment) *attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fileless -= e.local[id].fileless()
	e.local[id] = a
	e.fileless += a.fileless()
	return a
}

// detach forgets a session that is not, or no longer, this process's.
func (e *Engine) detach(id string) {
	a := e.local[id]
	if a == nil {
		return
	}
	e.mu.Lock()
	e.fileless -= a.fileless()
	delete(e.local, id)
	e.mu.Unlock()
	ofSession := func(ref lockkeeper.Ref) bool { return ref.Session == id }
	maps.DeleteFunc(e.waits, func(ref lockkeeper.Ref, _ uint64) bool { return ofSession(ref) })
	maps.DeleteFunc(e.bounds, func(ref lockkeeper.Ref, _ bool) bool { return ofSession(ref) })
	if a.file != nil {
		e.folder.remove(a.name)
		a.file.Close()
	}
}

// keepFiles leaves the files of sessions that were not left locked until what they
// were promised has passed: their holders may still count on it.
func (e *Engine) keepFiles() {
	for _, a := range e.local {
		if f := a.file; f != nil { // and of a nothing more is kept
			time.AfterFunc(a.ttl, func() { f.Close() })
		}
	}
}

// SessionFile returns the file by which the kernel tells other processes that
// the session lives; nil if it is not attached here, or has none. A child that
// inherits it (exec.Cmd.ExtraFiles) keeps the session alive, so that what the
// session holds goes to nobody else before the child is dead as well, or the TTL
// has passed. The file is the engine's: don't close it.
//
// It is safe for concurrent use.
func (e *Engine) SessionFile(session string) *os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.local[session]; a != nil {
		return a.file
	}
	return nil
}
