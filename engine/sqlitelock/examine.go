package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of free room on a disk: a commit needs some kilobytes, and a busy log grows to some
// megabytes.
const (
	littleRoom = 64 << 20
	noRoom     = 1 << 20
)

// insight has the facts that the engine's goroutine gathers for the checks, from its connection and
// its cache.
type insight struct {
	err           error // nothing could be read, and the rest means nothing
	mode          string
	synchronous   int
	sessions      int
	withProcess   int
	held, waiting int
	dead          []string // sessions whose processes are dead
	missing       []string // sessions whose files are gone
	foreign       []string // entries in the folder of session files that are no session files
	folder        error    // why the folder of session files is unusable
	behind        time.Duration
}

// Examine implements lockkeeper.Examiner. It looks at the file by a connection
// of its own, so that nobody waits for it, and changes nothing.
func (e *Engine) Examine(ctx context.Context) []lockkeeper.Finding {
	var seen insight
	if err := e.call(ctx, true, func(tx *transaction) { seen = tx.examine() }); err != nil {
		seen.err = err
	}
	checks := []func(context.Context, *insight) lockkeeper.Finding{
		e.examineFile, e.examineContents, e.examineLog, e.examineFileSystem, e.examineRoom, e.examineKernel,
		e.examinePermissions, e.examineFolder, e.examineWakeups, e.examineSessions, e.examineTheDead, e.examineTime,
	}
	findings := make([]lockkeeper.Finding, len(checks))
	err := e.db.me.do(func() {
		for i, check := range checks {
			findings[i] = check(ctx, &seen)
		}
	})
	if err != nil {
		return []lockkeeper.Finding{broken("file", err.Error(), "do as it says")}
	}
	return findings
}

// examine gathers an insight, inside a transaction.
func (tx *transaction) examine() (seen insight) {
	e := tx.e
	if seen.err = e.db.conn.QueryRowContext(context.Background(),
		"SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous").
		Scan(&seen.mode, &seen.synchronous); seen.err != nil {
		return seen
	}
	for id, s := range e.cache.sessions {
		seen.sessions++
		if s.file == "" {
			continue
		}
		seen.withProcess++
		if e.local.Get(id) != nil {
			continue
		}
		switch e.folder.state(s.file) {
		case fileFree:
			seen.dead = append(seen.dead, id)
		case fileGone:
			seen.missing = append(seen.missing, id)
		}
	}
	if _, seen.foreign, seen.folder = e.folder.entries(); errors.Is(seen.folder, fs.ErrNotExist) {
		seen.folder = nil // no session has been there yet
	}
	for st := range e.shown().List(lockkeeper.Query{}) {
		switch st.State {
		case lockkeeper.Held:
			seen.held++
		case lockkeeper.Waiting:
			seen.waiting++
		}
	}
	reading, err := e.clock()
	seen.err = err
	seen.behind = tx.meta.base + tx.meta.counters.Now - reading
	return seen
}

// fine, doubtful and broken make findings.
func fine(check, format string, args ...any) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Fine, Detail: fmt.Sprintf(format, args...)}
}

func doubtful(check, detail, remedy string) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Doubtful, Detail: detail, Remedy: remedy}
}

func broken(check, detail, remedy string) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Broken, Detail: detail, Remedy: remedy}
}

func (e *Engine) examineFile(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "file"
	info, err := os.Stat(e.db.path)
	switch {
	case err != nil:
		return broken(check, fmt.Sprintf("%s is gone (%v)", e.db.path, err), "restart what uses it; a new file is made")
	case !os.SameFile(info, e.db.file):
		return broken(check, e.db.path+" is another file than the one that was opened",
			"restart what uses it: its locks and those of the new file know nothing of each other")
	case seen.err != nil:
		return broken(check, seen.err.Error(), "see what the other checks say")
	case links(info) > 1:
		return broken(check, fmt.Sprintf("%s has %d names (hard links)", e.db.path, links(info)),
			"remove all names but one: SQLite keeps its log beside the name, so users of different names don't see each other")
	}
	log, _ := os.Stat(e.db.path + "-wal")
	var logged int64
	if log != nil {
		logged = log.Size()
	}
	return fine(check, "%s, %d kB and %d kB of log, schema version %d", e.db.path, info.Size()>>10, logged>>10,
		e.db.schema.Latest)
}

// examineContents has SQLite check the file, which does less on a connection
// that can only read.
func (e *Engine) examineContents(ctx context.Context, _ *insight) lockkeeper.Finding {
	const check, remedy = "contents", "once nobody uses it, remove the file and what lies beside it under its name; " +
		"all locks in it end"
	pool, conn, err := e.db.dial(ctx, "mode=rw")
	if err != nil {
		return broken(check, err.Error(), "see what the other checks say")
	}
	defer pool.Close()
	defer conn.Close()
	var wrong []string
	rows, err := conn.QueryContext(ctx, "PRAGMA quick_check(10)")
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err == nil && line != "ok" {
				wrong = append(wrong, line)
			}
		}
		err = rows.Err()
	}
	switch {
	case ctx.Err() != nil:
		return doubtful(check, "there was no time to check them", "check again with more time")
	case err != nil:
		return broken(check, err.Error(), remedy)
	case len(wrong) > 0:
		return broken(check, strings.Join(wrong, "; "), remedy)
	}
	return fine(check, "SQLite finds no damage")
}

func (e *Engine) examineLog(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "log"
	if seen.err != nil {
		return unseen(check)
	}
	levels := map[int]string{0: "off", 1: "normal", 2: "full", 3: "extra"}
	detail := fmt.Sprintf("journal mode %s, synchronous %s", seen.mode, levels[seen.synchronous])
	switch {
	case seen.mode != "wal":
		return broken(check, detail, "restart what uses the file: another program has changed its journal mode")
	case seen.synchronous < 2:
		return doubtful(check, detail+": a loss of power may undo what was answered",
			"commits should wait for the disk: synchronous full")
	}
	return fine(check, "%s: what is answered is on the disk", detail)
}

// unseen is the finding of a check for which nothing could be read.
func unseen(check string) lockkeeper.Finding {
	return broken(check, "nothing could be read", "see what is said of the file")
}

func (e *Engine) examineFileSystem(context.Context, *insight) lockkeeper.Finding {
	const check = "file system"
	kind, err := fileSystemOf(filepath.Dir(e.db.path))
	if err != nil {
		return doubtful(check, err.Error(), "see what is said of the file")
	}
	switch kind.classify() {
	case network:
		return broken(check, kind.String()+" is a network file system", "use a file on a disk of this computer")
	case twoSides:
		return doubtful(check, kind.String()+" may be shared between a virtual machine and its host, which don't see each "+
			"other's locks",
			"use the file from one side only, or one on a disk of this computer")
	}
	return fine(check, "%s, which is on this computer as far as is known", kind)
}

func (e *Engine) examineRoom(context.Context, *insight) lockkeeper.Finding {
	const check = "free space"
	room, files, err := freeRoom(filepath.Dir(e.db.path))
	detail := fmt.Sprintf("%d MB are free", room>>20)
	switch {
	case err != nil:
		return doubtful(check, err.Error(), "see what is said of the file")
	case files == 0:
		return broken(check, "no more files can be made there", "remove files: each attached session has one")
	case room < noRoom:
		return broken(check, detail, "make room: without it nothing can be locked, renewed or released")
	case room < littleRoom:
		return doubtful(check, detail, "make room: without it nothing can be locked, renewed or released")
	}
	return fine(check, "%s", detail)
}

// examineKernel tries whether the lock on a session file tells if its process lives.
func (e *Engine) examineKernel(context.Context, *insight) lockkeeper.Finding {
	const check = "crash detection"
	if !kernelKnows {
		return doubtful(check, "this system does not tell when a process dies",
			"what a killed process held is free after its TTL: choose a short one")
	}
	folder := filepath.Dir(e.db.path)
	holds, err := locksHold(folder)
	switch {
	case err != nil:
		return broken(check, err.Error(), "sessions need files: "+e.db.whyNotWritable())
	case !holds:
		return broken(check, "locks in "+folder+" don't hold",
			"use a file on another file system: here the living would be taken for dead")
	}
	return fine(check, "a killed process is noticed at once, by the locks on files in %s", e.folder.path)
}

// locksHold tries locks as sessions have them, on a directory, so that nothing need be made.
func locksHold(directory string) (bool, error) {
	var f [2]*os.File
	for i := range f {
		opened, err := openDirectory(directory)
		if err != nil {
			return false, err
		}
		defer opened.Close()
		f[i] = opened
	}
	switch err := lockFile(f[0], true); {
	case errors.Is(err, errFileLocked):
		return true, nil // another process tests it now
	case err != nil:
		return false, err
	}
	living := lockFile(f[1], false)
	f[0].Close()
	dead := lockFile(f[1], false)
	return errors.Is(living, errFileLocked) && dead == nil, nil
}

func (e *Engine) examinePermissions(context.Context, *insight) lockkeeper.Finding {
	const check = "permissions"
	folder := filepath.Dir(e.db.path)
	for _, path := range []string{e.db.path, folder} {
		if access(path) != nil {
			return broken(check, e.db.whyNotWritable(), "let this user write both the file and its directory")
		}
	}
	detail := fmt.Sprintf("the file is %s, its directory %s", ownership(e.db.path), ownership(folder))
	info, err := os.Stat(e.db.path)
	switch {
	case err != nil: // the check of the file reports it
	case info.Mode()&0o002 != 0:
		return doubtful(check, detail, "everybody on this computer may end every lock: take the permission to write from "+
			"others (chmod o-w)")
	case info.Mode()&0o004 != 0:
		return doubtful(check, detail, "everybody on this computer may hold up all who use it, by locks on its log: "+
			"take the permission to read from others (chmod o-r), of "+e.db.path+"-wal and -shm too")
	}
	if made, err := os.Stat(e.folder.path); err == nil && made.Mode().Perm()&^0o111 != e.folder.mode() {
		return doubtful(check, detail+", and that of session files "+ownership(e.folder.path),
			fmt.Sprintf("give the directory of session files the mode %o: else some users wake others late",
				directoryMode(e.folder.mode())))
	}
	return fine(check, "%s", detail)
}

// examineFolder looks for foreign files among the session files.
func (e *Engine) examineFolder(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "session files"
	switch {
	case seen.err != nil:
		return unseen(check)
	case seen.folder != nil:
		return broken(check, seen.folder.Error(), "do as it says: until then nobody can begin a session with a process")
	case len(seen.foreign) > 0:
		return e.foreignFiles(seen.foreign)
	}
	return fine(check, "there is nothing else in %s", e.folder.path)
}

// foreignFiles returns the finding about foreign files among the session files.
func (e *Engine) foreignFiles(names []string) lockkeeper.Finding {
	const named = 3
	list := fmt.Sprintf("%q", names[:min(len(names), named)])
	if more := len(names) - named; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return doubtful("session files",
		fmt.Sprintf("in %s there is what no session has made, which is left alone: %s", e.folder.path, list),
		"look at it, and move it elsewhere or remove it")
}

// Notices implements lockkeeper.Noticer.
func (e *Engine) Notices() []lockkeeper.Finding {
	if len(e.foreign) == 0 {
		return nil
	}
	return []lockkeeper.Finding{e.foreignFiles(e.foreign)}
}

// examineWakeups tries whether this process can be woken by changes of files.
func (e *Engine) examineWakeups(context.Context, *insight) lockkeeper.Finding {
	const check = "wake-ups"
	const remedy = "raise fs.inotify.max_user_instances and max_user_watches (sysctl), or end what watches so many " +
		"files: waiting processes look every 100 ms instead"
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(e.db.path))
	}
	used, most := watchersOfUser()
	switch {
	case err != nil:
		return doubtful(check, fmt.Sprintf("files can't be watched (%v)", err), remedy)
	case most == 0:
		return fine(check, "waiting processes are woken by changes of files")
	case used*10 > most*9:
		return doubtful(check, fmt.Sprintf("%d of %d watchers of this user are in use", used, most), remedy)
	}
	return fine(check, "waiting processes are woken by changes of files; %d of %d watchers of this user are in use", used,
		most)
}

func (e *Engine) examineSessions(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "sessions"
	if seen.err != nil {
		return unseen(check)
	}
	return fine(check, "%d, of which %d have a process; %d held, %d waiting",
		seen.sessions, seen.withProcess, seen.held, seen.waiting)
}

func (e *Engine) examineTheDead(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "dead processes"
	switch {
	case seen.err != nil:
		return unseen(check)
	case len(seen.dead) > 0:
		return doubtful(check, "the processes of these sessions are dead: "+strings.Join(seen.dead, ", "),
			"nothing need be done: they end when somebody wants what they hold, or opens the file, or at their TTL")
	case len(seen.missing) > 0:
		return doubtful(check, "the files of these sessions are gone, so nobody can tell whether their processes live: "+
			strings.Join(seen.missing, ", "),
			"leave the files in "+e.folder.path+" alone; what is held by the dead is free at their TTL")
	}
	return fine(check, "no session has lost its process")
}

func (e *Engine) examineTime(_ context.Context, seen *insight) lockkeeper.Finding {
	const check = "time"
	switch {
	case seen.err != nil:
		return unseen(check)
	case seen.behind > time.Second:
		return doubtful(check, fmt.Sprintf("the boot clock reads %s less than at the latest entry, as after the restoring "+
			"of a virtual machine", seen.behind.Round(time.Second)),
			"until it has caught up the time of the locks stands still, and leases of the dead last longer: reboot, if that "+
				"is too long")
	}
	return fine(check, "the boot clock goes on from the latest entry")
}
