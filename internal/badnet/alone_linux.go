package badnet

import (
	"bufio"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// aloneVariable names the test that this process runs alone.
const aloneVariable = "BADNET_ALONE"

// Alone runs the calling test in a new process with a network namespace of its own. It returns true in
// that process. In the calling process it returns false after the end of the test, which should then
// return. Without root or user namespaces the test is skipped; with CI=true in the environment it fails
// instead.
//
// The kernel kills the new process with the calling one, and the namespace ends with it.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVariable) == t.Name() {
		if err := ip("link", "set", "lo", "up"); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], append(testFlags(), "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")...)
	cmd.Env = append(os.Environ(), aloneVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 { // as root of a user namespace, if the system allows it
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if deadline, limited := t.Deadline(); limited {
		cmd.Args = append(cmd.Args, "-test.timeout="+time.Until(deadline).String())
	}
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	done := make(chan bool)
	go func() { done <- relay(t, out) }()
	err := startAlone(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	in.Close()
	ran := <-done
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		t.Errorf("the process that runs this test alone: %v", err)
	case err != nil:
		unable(t, "no network namespace: "+err.Error())
	case !ran:
		unable(t, "the process that runs this test alone did not run it")
	}
	return false
}

func startAlone(cmd *exec.Cmd) error {
	if _, err := exec.LookPath("ip"); err != nil {
		return err // of iproute2
	}
	return cmd.Start()
}

// testFlags returns the flags of this process, except those that select tests.
func testFlags() (kept []string) {
	flag.Visit(func(f *flag.Flag) {
		switch name := strings.TrimPrefix(f.Name, "test."); name {
		case "run", "count", "v", "timeout", "paniconexit0", "coverprofile", "outputdir", "testlogfile", "gocoverdir":
		default:
			kept = append(kept, "-"+f.Name+"="+f.Value.String())
		}
	})
	return kept
}

// relay logs the output of the other process, and reports whether it completed the test.
func relay(t *testing.T, out io.Reader) (ran bool) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
		for _, verdict := range []string{"--- PASS: ", "--- FAIL: ", "--- SKIP: "} {
			ran = ran || strings.HasPrefix(lines.Text(), verdict+t.Name())
		}
	}
	_, _ = io.Copy(io.Discard, out) // a line that is too long must not block the other process
	return ran
}

// unable skips the test, or fails it with CI=true.
func unable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why + " (CI=true is set, so this is not skipped)")
	}
	t.Skip(why)
}
