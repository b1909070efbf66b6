package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// runCleanup runs a shell command under the lease that s supervises, with these
// variables, reports its failure, and returns its exit code. The rest of the lease bounds
// it as it bounds any command; if the lease is over, the script is not run. s must be a
// supervisor that was not started. Only the main goroutine may call runCleanup.
func runCleanup(script string, env []string, session *os.File, s supervisor, signals chan os.Signal) (code int) {
	if err := s.lease.Err(); err != nil {
		s.note(fmt.Sprintf("the clean-up was not run, since others may hold the lock by now: %s", err))
		return exitLost
	}
	if s.onLost == warn {
		s.onLost = terminate // --on-lost is about the command
	}
	s.onYield = ignore
	s.grace = min(s.grace, s.lease.Remaining()/4) // the command may have had most of what was left
	if err := s.start([]string{"sh", "-c", script}, env, session); err != nil {
		s.note(fmt.Sprintf("the clean-up: %s", err))
		var refused *exit
		if errors.As(err, &refused) {
			return refused.code
		}
		return exitNotExecutable
	}
	code, lost := s.supervise(signals)
	switch {
	case lost != nil:
		s.note(fmt.Sprintf("the clean-up did not end in time: %s", lost))
		return exitLost
	case code != 0:
		s.note(fmt.Sprintf("the clean-up failed with exit code %d", code))
	}
	return code
}

// exitVariable gives a clean-up the exit code of the command.
func exitVariable(code int) string { return "LK_EXIT=" + strconv.Itoa(code) }

// withCleanup is the command followed by its clean-up, for an lk that can't
// run it since it became the command of a run around it.
func withCleanup(command []string, cleanup string) []string {
	const script = `cleanup=$1; shift; trap : INT QUIT TERM HUP
"$@"; LK_EXIT=$?; export LK_EXIT
sh -c "$cleanup"; cleaned=$?
[ $cleaned = 0 ] || echo "lk: the clean-up failed with exit code $cleaned" >&2
[ $LK_EXIT != 0 ] || exit $cleaned
exit $LK_EXIT`
	return append([]string{"sh", "-c", script, "lk", cleanup}, command...)
}
