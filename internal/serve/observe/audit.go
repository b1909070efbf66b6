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
	mostUnwritten = 8 << 20         // bytes that wait for the file; beyond it lines are dropped, and counted
	syncPause     = time.Second     // between syncs, and before a failed write is retried
	slowWrite     = 5 * time.Second // a longer write makes the server not ready
	closeTime     = 5 * time.Second // that Close waits for the file
	lookPause     = time.Second     // between checks that the file still has its name
)

// An Audit appends lines of JSON to a file: grants, ends, denials, and operators' acts. It never
// delays a lock: callers add lines to a buffer, and a goroutine writes them. If the file can't be
// written fast enough, lines are dropped, and a later line says how many.
//
// All methods are safe for concurrent use. A nil Audit keeps nothing.
type Audit struct {
	path     string
	identity func(session string) string
	wakeup   chan struct{}
	quit     chan struct{}
	done     chan struct{} // closed by the writer
	once     sync.Once

	mu       sync.Mutex // guards all below; not held while the file is written
	pending  []byte     // whole lines, not yet taken by the writer
	dropped  int        // lines since the last gap line
	counts   auditCounts
	failure  error     // of the latest write or sync; nil if it succeeded
	astray   error     // why lines go to a file that no longer has the name; nil if they don't
	writing  time.Time // when the write in flight began; zero: there is none
	denials  int       // lines about denials in the present second
	second   time.Time // the present second
	withheld int       // denials in it without a line

	fileMu sync.Mutex // guards file, also during its use; locked before mu
	file   *os.File
	cut    bool // the last line in it has no end
}

// auditCounts are for metrics.
type auditCounts struct{ written, dropped uint64 }

// OpenAudit opens the file for appending, and creates it if it is missing, readable by its owner
// only. identity returns the owner of a session; nil and "" omit it. The error is ErrUnavailable if
// the file can't be written now, and ErrInvalid if it is a directory.
func OpenAudit(path string, identity func(session string) string) (*Audit, error) {
	file, cut, err := openLines(path)
	if err != nil {
		return nil, err
	}
	a := &Audit{
		path: path, identity: identity, file: file, cut: cut,
		wakeup: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go a.run()
	return a, nil
}

// openLines opens a file to append lines. cut reports that its last line has no end, because its
// writer was killed.
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

// Reopen opens the file again by its name, after log rotation renamed it. If that fails, the audit
// log goes on writing the old file, Err returns the error, and the writer retries each second.
func (a *Audit) Reopen() error {
	if a == nil {
		return nil
	}
	file, cut, err := openLines(a.path)
	a.mu.Lock()
	a.astray = nil
	if err != nil {
		a.astray = fmt.Errorf("lines go to the previous file, and are lost if it was removed: %w",
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
	syncFile(old) // a failure is final: nothing else can make these lines safe
	return old.Close()
}

// checkFile reopens the file if it no longer has the name. strayed says that the previous check
// found that already; the result is its value for the next check. So checkFile leaves log rotation
// a pause to call Reopen itself.
func (a *Audit) checkFile(strayed bool) bool {
	a.mu.Lock()
	a.writing = time.Now() // an unreachable file system may hang here, too
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
		a.add(encode(&line{Event: "gap", Text: "the file was removed or renamed; the lines just before went to it"}))
	}
	return astray
}

// isAstray reports whether the open file no longer has the name. A pipe or a device is never
// astray.
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

// Err returns why lines can't be written; nil if they can.
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

// count returns how many lines were written, and dropped.
func (a *Audit) count() auditCounts {
	if a == nil {
		return auditCounts{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Close writes the pending lines, within 5 s, and closes the file. Later lines are lost.
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

// add appends one line, which ends in a newline, or nothing if line is nil.
func (a *Audit) add(line []byte) {
	a.mu.Lock()
	if len(a.pending)+len(line) > mostUnwritten {
		a.dropped++
		a.counts.dropped++
	} else {
		a.pending = append(a.pending, line...)
	}
	a.mu.Unlock()
	a.wake()
}

func (a *Audit) wake() {
	select {
	case a.wakeup <- struct{}{}:
	default:
	}
}

// run is the writer.
func (a *Audit) run() {
	defer close(a.done)
	var batch []byte // taken, and not yet written
	var synced time.Time
	timer := time.NewTimer(syncPause)
	defer timer.Stop()
	looks := time.NewTicker(lookPause)
	defer looks.Stop()
	unsynced, waiting := false, false // what the timer is for: a sync, or a retry
	strayed := false
	for {
		quitting := false
		select {
		case <-a.wakeup:
			if waiting {
				continue
			}
		case <-looks.C:
			strayed = a.checkFile(strayed)
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
		if !a.isEmpty() { // lines came during the write
			a.wake()
		}
	}
}

// takeLines takes the pending lines, and appends one about dropped lines and one about withheld
// denials.
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

// write writes the lines with one system call, and returns those not written. A line written in
// part is among them: write ends the partial line, and the next call writes it again.
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

// sync syncs the file. If that fails, lines may be missing, and a gap line says so.
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

// syncFile is file.Sync, without the error of a pipe or a device, which can't be synced.
func syncFile(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
