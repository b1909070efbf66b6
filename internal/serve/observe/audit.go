package observe

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of the audit log.
const (
	mostUnwritten = 8 << 20         // bytes that wait for the file; what comes then is dropped, and counted
	syncPause     = time.Second     // between syncs, and before a write that failed is tried again
	slowWrite     = 5 * time.Second // a write that takes longer is trouble
	closeTime     = 5 * time.Second // that Close waits for the file
	lookPause     = time.Second     // between looks whether the file still has its name
)

// An Audit is a file to which a line of JSON is added for everything that a person
// may have to find out later. It never holds up a lock: lines are taken in memory,
// and a goroutine writes them. If the file can't be written, or not fast enough,
// lines are dropped, and when it can be again a line says how many.
//
// All methods are safe for concurrent use, and may be called on a nil Audit, which
// keeps nothing.
type Audit struct {
	path     string
	identity func(session string) string
	bell     chan struct{}
	quit     chan struct{}
	done     chan struct{} // closed by the writer
	once     sync.Once

	mu       sync.Mutex // guards all below; not held while the file is written
	pending  []byte     // whole lines
	dropped  int        // lines since the last line that was taken
	counts   auditCounts
	failure  error     // of the latest write or sync; nil if that was well
	astray   error     // why lines go to a file that the name is not of; nil if they don't
	writing  time.Time // when the write at hand began; zero: none is
	denials  int       // lines about them in the second at hand
	second   time.Time // that one
	withheld int       // denials in it that got no line

	fileMu sync.Mutex // guards file, and is held while it is used; taken before mu
	file   *os.File
	cut    bool // the last line in it has no end
}

// auditCounts are for metrics.
type auditCounts struct{ written, dropped uint64 }

// OpenAudit opens the file for adding to it, and makes it, for its owner alone, if it
// is not there. identity tells whose a session is; nil, and "", leave that out. What
// can't be written right now is refused with ErrUnavailable, a directory with ErrInvalid.
func OpenAudit(path string, identity func(session string) string) (*Audit, error) {
	file, cut, err := openLines(path)
	if err != nil {
		return nil, err
	}
	a := &Audit{
		path: path, identity: identity, file: file, cut: cut,
		bell: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go a.run()
	return a, nil
}

// openLines opens a file to add lines. cut says that its last one has no end, since
// whoever wrote it was killed.
func openLines(path string) (f *os.File, cut bool, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, false, lockkeeper.Invalid("audit log %s is a directory: name a file in it", path)
	}
	f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, &lockkeeper.Error{
			Err:    lockkeeper.ErrUnavailable,
			Detail: "audit log " + path + " can't be written",
			Cause:  err,
		}
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if r, err := os.Open(path); err == nil {
			var last [1]byte
			_, err = r.ReadAt(last[:], info.Size()-1)
			cut = err == nil && last[0] != '\n'
			r.Close()
		}
	}
	return f, cut, nil
}

// Reopen opens the file anew by its name, after it was renamed to begin a new one. If
// it can't be, the old one is written on, the error says why, as Err does from then on,
// and it is tried again each second.
func (a *Audit) Reopen() error {
	if a == nil {
		return nil
	}
	file, cut, err := openLines(a.path)
	a.mu.Lock()
	a.astray = nil
	if err != nil {
		a.astray = fmt.Errorf("what is logged goes to the file that was there before, and is lost if that was removed: %w",
			err)
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.fileMu.Lock()
	old := a.file
	a.file, a.cut = file, cut
	a.fileMu.Unlock()
	syncFile(old) // what can't be made safe now never will be
	return old.Close()
}

// look makes sure that the lines go to the file that the name is of. strayed says that
// at the look before they did not; what it returns is that for the next one. Only what
// lasts is mended: whoever renames the file is about to say so by Reopen.
func (a *Audit) look(strayed bool) bool {
	a.mu.Lock()
	a.writing = time.Now() // a file system that is away may hang here too
	failed := a.astray != nil
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.writing = time.Time{}
		a.mu.Unlock()
	}()
	astray := a.isAstray()
	if !failed && !(astray && strayed) {
		return astray
	}
	if err := a.Reopen(); err == nil && astray {
		a.add(encode(&line{Event: "gap", Text: "the file was removed or renamed, and the lines just before went there"}))
	}
	return astray
}

// isAstray reports whether the file that is written is not the one of its name. A
// pipe or a device never is.
func (a *Audit) isAstray() bool {
	a.fileMu.Lock()
	open, err := a.file.Stat()
	a.fileMu.Unlock()
	if err != nil || !open.Mode().IsRegular() {
		return false
	}
	named, err := os.Stat(a.path)
	return err != nil || !os.SameFile(open, named)
}

// Err says what keeps the log from being written; nil if nothing does.
func (a *Audit) Err() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil && !a.writing.IsZero() && time.Since(a.writing) > slowWrite {
		return fmt.Errorf("audit log %s: a write has taken %s so far", a.path, time.Since(a.writing).Round(time.Second))
	}
	return cmp.Or(a.failure, a.astray)
}

// count is how many lines were written, and dropped.
func (a *Audit) count() auditCounts {
	if a == nil {
		return auditCounts{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Close writes what it has, within 5 s, and closes the file. Lines that come later
// are lost.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.once.Do(func() { close(a.quit) })
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-a.done:
		return a.Err()
	case <-timer.C:
		return fmt.Errorf("audit log %s: it could not be written to its end within %s", a.path, closeTime)
	}
}

// add takes one line, which ends in a newline; it may be nil, for nothing.
func (a *Audit) add(line []byte) {
	a.mu.Lock()
	if len(a.pending)+len(line) > mostUnwritten {
		a.dropped++
		a.counts.dropped++
	} else {
		a.pending = append(a.pending, line...)
	}
	a.mu.Unlock()
	a.ring()
}

func (a *Audit) ring() {
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

// run is the writer.
func (a *Audit) run() {
	defer close(a.done)
	var batch []byte // not written yet
	var synced time.Time
	timer := time.NewTimer(syncPause)
	defer timer.Stop()
	looks := time.NewTicker(lookPause)
	defer looks.Stop()
	unsynced, waiting := false, false // for the timer: to sync, or to try again
	strayed := false
	for {
		quitting := false
		select {
		case <-a.bell:
			if waiting {
				continue
			}
		case <-looks.C:
			strayed = a.look(strayed)
			continue
		case <-timer.C:
		case <-a.quit:
			quitting = true
		}
		waiting = false
		if len(batch) == 0 {
			batch = a.takeLines()
		}
		wrote := len(batch)
		batch = a.write(batch)
		unsynced = unsynced || len(batch) < wrote
		if unsynced && (quitting || time.Since(synced) >= syncPause) {
			a.sync()
			unsynced, synced = false, time.Now()
		}
		switch {
		case quitting:
			if len(batch) == 0 && a.isEmpty() || len(batch) > 0 {
				a.fileMu.Lock()
				a.file.Close()
				a.fileMu.Unlock()
				return
			}
		case len(batch) > 0:
			waiting = true
			timer.Reset(syncPause)
			continue
		case unsynced:
			timer.Reset(syncPause - time.Since(synced))
		}
		if !a.isEmpty() { // it came while the file could not be written
			a.ring()
		}
	}
}

// takeLines takes what waits, with what was dropped told at its end.
func (a *Audit) takeLines() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := a.pending
	a.pending = nil
	if a.dropped > 0 {
		lines = append(lines, encode(&line{
			Event:   "gap",
			Dropped: a.dropped,
			Text:    "the file could not be written in time",
		})...)
		a.dropped = 0
	}
	if a.withheld > 0 && time.Since(a.second) >= time.Second {
		lines = append(lines, encode(&line{Event: "denied", More: a.withheld})...)
		a.withheld = 0
	}
	return lines
}

func (a *Audit) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pending) == 0 && a.dropped == 0
}

// write writes the lines with one write, and returns those that are not written: none
// if all is well. A line that was written in part is among them; it is ended and
// written again, whole.
func (a *Audit) write(lines []byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	a.mu.Lock()
	a.writing = time.Now()
	a.mu.Unlock()
	a.fileMu.Lock()
	var err error
	if a.cut {
		_, err = a.file.Write([]byte{'\n'})
		a.cut = err != nil
	}
	n := 0
	if err == nil {
		n, err = a.file.Write(lines)
	}
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	a.cut = a.cut || n > whole
	a.fileMu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = time.Time{}
	a.counts.written += uint64(bytes.Count(lines[:whole], []byte{'\n'}))
	if err != nil {
		a.failure = fmt.Errorf("audit log %s can't be written: %w", a.path, err)
		return lines[whole:]
	}
	a.failure = nil
	return nil
}

// sync has the disk confirm what was written. If it doesn't, nobody knows what the
// file has: a line says so.
func (a *Audit) sync() {
	a.mu.Lock()
	a.writing = time.Now()
	a.mu.Unlock()
	a.fileMu.Lock()
	err := syncFile(a.file)
	a.fileMu.Unlock()
	a.mu.Lock()
	a.writing = time.Time{}
	if err == nil {
		a.mu.Unlock()
		return
	}
	a.failure = fmt.Errorf("audit log %s can't be made safe: %w", a.path, err)
	a.mu.Unlock()
	a.add(encode(&line{Event: "gap", Text: "the disk did not confirm the lines before this one: some may be missing"}))
}

// syncFile syncs what can be synced: a pipe or a device can't.
func syncFile(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
