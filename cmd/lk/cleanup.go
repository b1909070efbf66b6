package main

import (
	"fmt"
	"os"
	"strconv"
)

// runCleanup runs a shell command under the lease that s supervises, with these
// variables, and tells the user of its failure. What is left of the lease bounds
// it as it bounds any command; if nothing is, it is not run. s serves this command
// alone: it must not have been started. It must be called by the main goroutine.
func runCleanup(script string, env []string, session *os.File, s supervisor, signals chan os.Signal) {
	if err := s.lease.Err(); err != nil {
		s.note(fmt.Sprintf("the cleanup was not run, since others may hold the lock by now: %s", err))
		return
	}
	if s.onLost == warn {
		s.onLost = terminate // the command's luck is not the cleanup's
	}
	s.onYield = ignore
	s.grace = min(s.grace, s.lease.Remaining()/4) // the command may have had most of what was left
	if err := s.start([]string{"sh", "-c", script}, env, session); err != nil {
		s.note(fmt.Sprintf("the cleanup: %s", err))
		return
	}
	switch code, lost := s.supervise(signals); {
	case lost != nil:
		s.note(fmt.Sprintf("the cleanup did not end in time: %s", lost))
	case code != 0:
		s.note(fmt.Sprintf("the cleanup ended with exit code %d", code))
	}
}

// exitVariable tells a cleanup how the command ended.
func exitVariable(code int) string { return "LK_EXIT=" + strconv.Itoa(code) }

// withCleanup is the command followed by its cleanup, where lk is not there to
// run it since it became the command of a run around it.
func withCleanup(command []string, cleanup string) []string {
	const script = `cleanup=$1; shift; trap : INT QUIT TERM HUP
"$@"; LK_EXIT=$?; export LK_EXIT
sh -c "$cleanup" || echo "lk: the cleanup ended with exit code $?" >&2
exit "$LK_EXIT"`
	return append([]string{"sh", "-c", script, "lk", cleanup}, command...)
}
