package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// process has the fields of /proc/PID/stat that a guard needs.
type process struct {
	parent  int
	group   int
	session int
	began   uint64 // start time, in clock ticks since boot
	dead    bool   // all threads have ended, and the parent has not waited for it
}

// processes returns the numbers of all processes that /proc shows.
func processes() ([]int, error) {
	if !procIsOurs() {
		return nil, errors.New("/proc is not mounted, or shows the processes of another namespace")
	}
	// Process 1 belongs to root. If /proc hides processes of other users (hidepid), it hides this one.
	if _, err := readProcess(1); err != nil {
		return nil, fmt.Errorf("/proc hides the processes of other users: %w", err)
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	numbers := make([]int, 0, len(folders))
	for _, folder := range folders {
		if number, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}

// procIsOurs reports whether /proc shows the PID namespace of this process. It does not if
// somebody made the namespace without a new /proc (unshare --pid).
func procIsOurs() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

func readProcess(number int) (p process, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", number))
	if err != nil {
		return p, err
	}
	// The program's name, in brackets, may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const threads, began = 17, 19 // fields after the name
	if len(fields) <= began {
		return p, fmt.Errorf("/proc/%d/stat has %d fields", number, len(fields))
	}
	// The state is that of the main thread. Other threads may run after it has ended; a
	// dead process has one thread left.
	p.dead = bytes.ContainsAny(fields[0], "ZX") && (string(fields[threads]) == "1" || string(fields[threads]) == "0")
	for i, to := range map[int]*int{1: &p.parent, 2: &p.group, 3: &p.session} {
		if *to, err = strconv.Atoi(string(fields[i])); err != nil {
			return p, err
		}
	}
	p.began, err = strconv.ParseUint(string(fields[began]), 10, 64)
	return p, err
}

// mayDescend reports whether a running process may descend from a command of lk that
// began at that time, even if the process left the group and the session, closed its
// files, cleared its environment or changed its user. When lk and the command are dead,
// the kernel has given their orphans to the process that adopted this guard. So all
// ancestors of a descendant, up to that adopter, began after the command. The reverse is
// not true: the adopter may have other young children. In doubt mayDescend returns true.
func mayDescend(began uint64, session int) bool {
	// Twice, since a process may fork and end during the first pass.
	return began == 0 || listsDescendant(began, session) || listsDescendant(began, session)
}

func listsDescendant(began uint64, session int) bool {
	numbers, err := processes()
	if err != nil {
		return true
	}
	adopter := unix.Getppid()
	if _, err := readProcess(adopter); err != nil {
		return true
	}
	for _, number := range numbers {
		p, err := readProcess(number)
		if err != nil || p.dead || p.began < began || number == unix.Getpid() {
			continue // on an error it is gone
		}
		if adoptedSince(p, began, adopter) && !olderSession(p, began, session) {
			return true
		}
	}
	return false
}

// mostAncestors bounds the search: the kernel reuses process numbers, so the parents read
// one after the other may form a cycle.
const mostAncestors = 1000

// adoptedSince reports whether all ancestors of p below the adopter began at that time or later.
func adoptedSince(p process, began uint64, adopter int) bool {
	for range mostAncestors {
		if p.parent == adopter {
			return true
		}
		if p.parent == 0 {
			return false // the parent is outside this container
		}
		parent, err := readProcess(p.parent)
		if err != nil {
			return true // it ended just now, or is hidden
		}
		if parent.began < began {
			return false
		}
		p = parent
	}
	return true
}

// olderSession reports whether p is in a session other than lk's that is older than the
// command. A descendant is in lk's session or in a newer one. The kernel does not reuse
// the number of a session while a process is in it.
func olderSession(p process, began uint64, session int) bool {
	if p.session == session {
		return false
	}
	leader, err := readProcess(p.session)
	return p.session == 0 || err == nil && leader.began < began
}
