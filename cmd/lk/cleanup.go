package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// runCleanup runs a shell command under the lease of how, with these variables, reports its
// failure, and returns its exit code. The rest of the lease bounds it as it bounds any command; if
// the lease is over, the script is not run. Only the main goroutine may call runCleanup.
func runCleanup(script string, env []string, how supervise.Options, signals chan os.Signal) (code int) {
	if err := how.Lease.Err(); err != nil {
		how.Note(fmt.Sprintf("the clean-up was not run, since others may hold the lock by now: %s", err))
		return exitLost
	}
	if how.OnLost == supervise.Warn {
		how.OnLost = supervise.Terminate // --on-lost is about the command
	}
	how.OnYield = supervise.Ignore
	how.Grace = min(how.Grace, how.Lease.Remaining()/4) // the command may have had most of what was left
	s, err := supervise.Start(how, []string{"sh", "-c", script}, env)
	if err != nil {
		how.Note(fmt.Sprintf("the clean-up: %s", err))
		var refused *supervise.StartError
		if errors.As(err, &refused) {
			return refused.Code
		}
		return exitNotExecutable
	}
	end, lost := s.Wait(signals)
	code = end.Code
	switch {
	case lost != nil:
		how.Note(fmt.Sprintf("the clean-up did not end in time: %s", lost))
		return exitLost
	case code != 0:
		how.Note(fmt.Sprintf("the clean-up failed with exit code %d", code))
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
