package roles

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// patience bounds what must happen soon.
const patience = 20 * time.Second

// Inject makes system calls of p fail, until the caller calls stop. fault is what follows "inject=" in
// an argument of strace. The test is skipped if there is no strace, or if it may not trace.
func (p *Process) Inject(fault string) (stop func()) {
	p.t.Helper()
	tracer := exec.Command(p.strace(), "-f", "-qq", "-o", "/dev/null", "-e", "inject="+fault, "-p",
		fmt.Sprint(p.Cmd.Process.Pid))
	said, err := tracer.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { tracer.Process.Kill(); tracer.Wait() })
	if !traced(p.Cmd.Process.Pid) {
		tracer.Process.Kill()
		text, _ := io.ReadAll(said)
		p.t.Skipf("strace can't attach: %s", text)
	}
	return func() {
		tracer.Process.Signal(syscall.SIGINT)
		tracer.Wait()
	}
}

// strace returns the path of strace.
func (p *Process) strace() string {
	path, err := exec.LookPath("strace")
	if err != nil && os.Getenv("CI") == "true" {
		p.t.Fatal("there is no strace to make system calls fail: make tools installs it")
	}
	if err != nil {
		p.t.Skip("there is no strace to make system calls fail: make tools installs it")
	}
	return path
}

// traced waits until a tracer has every thread of the process.
func traced(pid int) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return false
		}
		n := 0
		for _, task := range tasks {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
			if _, rest, _ := strings.Cut(string(status), "TracerPid:"); !strings.HasPrefix(strings.TrimSpace(rest), "0\n") {
				n++
			}
		}
		if n == len(tasks) {
			return true
		}
		<-time.After(5 * time.Millisecond)
	}
	return false
}
