package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	programs["headless"] = headless
	programs["elsewhere"] = elsewhere
}

// headless ends its main thread, prints that, and runs until its input ends.
func headless() {
	go func() {
		for {
			stat, _ := os.ReadFile("/proc/self/stat")
			if bytes.Contains(stat, []byte(") Z ")) {
				break
			}
			runtime.Gosched()
		}
		fmt.Println("headless")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0) // of this thread alone
}

// A process runs until its last thread has ended, although /proc shows the state of its main
// thread. Otherwise the next holder would get the lock while the process runs.
func TestProcessRunsWithoutItsMainThread(t *testing.T) {
	if _, err := processes(); err != nil {
		t.Skip(err)
	}
	cmd := program("headless")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	g := openGroup(cmd.Process.Pid)
	if p, err := readProcess(g.number); err != nil || p.dead || !g.runs() {
		t.Errorf("read as %+v, %v, and its group runs: %v", p, err, g.runs())
	}
	in.Close()
	if over, err := awaitEnd(g.number); !over || err != nil {
		t.Fatal(over, err)
	}
	if p, err := readProcess(g.number); err != nil || !p.dead || g.runs() {
		t.Errorf("after its end read as %+v, %v, and its group runs: %v", p, err, g.runs())
	}
}

// elsewhere starts a process in its own group, and prints what lk can tell about it.
func elsewhere() {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	g := openGroup(cmd.Process.Pid)
	fmt.Printf("runs %v, may descend %v", g.runs(), mayDescend(g.began, 0))
}

// If /proc shows another namespace, it never proves that a process is dead.
func TestProcOfAnotherNamespaceProvesNoDeath(t *testing.T) {
	cmd := program("elsewhere")
	mapping := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: mapping(os.Getuid()),
		GidMappings: mapping(os.Getgid()),
	}
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if len(out) == 0 && err != nil {
		t.Skipf("no PID namespace can be made here: %v", err)
	}
	if want := "runs true, may descend true"; string(out) != want || err != nil {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
