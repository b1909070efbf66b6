package testdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running server. PostgreSQL is many processes, each a group of its own;
// all of them have the data as their working folder, by which they are found.
type process struct {
	pid      int // of the first, which starts the others
	dir      string
	gone     chan struct{} // closed when all its processes are
	err      error         // how the first ended; read after gone
	watchdog *watchdog     // when it is frozen
}

// launch starts a command in a folder, made if it is missing. Its output goes to log.
func launch(cmd *exec.Cmd, dir string, log *serverLog) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p := &process{dir: dir, gone: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}
	// A group of its own: ^C at the terminal is for the tests, which then end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid, gid, ok, err := otherUser(); err != nil {
		r.Close()
		return nil, err
	} else if ok {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	started := make(chan error)
	go func() {
		defer r.Close()
		// The death signal comes when the thread ends that started the process, so this goroutine
		// keeps the thread until the process is gone. Then it gives the thread back: a thread
		// whose locked goroutine ends would end too, and with it all else that it has started.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			log.follow(r) // until the last process is gone
			p.err = cmd.Wait()
			close(p.gone)
		}
	}()
	return p, <-started
}

// stop asks the server to end.
func (p *process) stop(signal syscall.Signal) error {
	if err := syscall.Kill(p.pid, signal); err != nil {
		return err
	}
	if err := p.thaw(); err != nil {
		return err
	}
	return p.await(stopBound)
}

// kill ends all processes. They are stopped before, so that none does anything more
// when others are dead already.
func (p *process) kill() error {
	pids, err := p.standing()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.dismiss()
	return p.await(stopBound)
}

func (p *process) await(limit time.Duration) error {
	bound := time.NewTimer(limit)
	defer bound.Stop()
	select {
	case <-p.gone:
		return nil
	case <-bound.C:
		return fmt.Errorf("its processes are still there after %v", limit)
	}
}

// freeze stops all processes. Nobody would end the stopped ones if this process was
// killed meanwhile, but the watchdog.
func (p *process) freeze() error {
	if p.watchdog != nil {
		return nil
	}
	pids, err := p.standing()
	if err == nil {
		p.watchdog, err = watch(pids)
	}
	return err
}

// thaw lets all processes go on.
func (p *process) thaw() error {
	defer p.dismiss()
	pids, err := p.all()
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	return err
}

func (p *process) dismiss() {
	if p.watchdog != nil {
		p.watchdog.dismiss()
		p.watchdog = nil
	}
}

// standing stops all processes and returns them: first the one that starts others,
// so that none is missed.
func (p *process) standing() ([]int, error) {
	if err := p.halt([]int{p.pid}); err != nil {
		return nil, err
	}
	pids, err := p.all()
	if err != nil {
		return nil, err
	}
	return pids, p.halt(pids)
}

// halt stops processes, and returns when they stand still or are dead. A stop takes a
// process as long as the call to the kernel that it is in, and there is no event to
// wait for of a process that is not a child.
func (p *process) halt(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
			return err
		}
	}
	end := time.Now().Add(stopBound)
	for _, pid := range pids {
		for !stands(pid) {
			if time.Now().After(end) {
				return fmt.Errorf("process %d does not stop", pid)
			}
			runtime.Gosched()
		}
	}
	return nil
}

// stands reports whether a process is stopped, or dead.
func stands(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return ok && len(after) > 0 && strings.IndexByte("TtZX", after[0]) >= 0
}

// all finds the server's processes.
func (p *process) all() ([]int, error) {
	dir, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if cwd, err := os.Readlink("/proc/" + e.Name() + "/cwd"); err == nil && cwd == dir {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// A watchdog kills processes when the process that started it is gone.
type watchdog struct {
	cmd   *exec.Cmd
	leash io.WriteCloser
}

func watch(pids []int) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", `read -r dismissed || kill -KILL "$@"`, "watchdog")
	for _, pid := range pids {
		cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &watchdog{cmd, leash}, cmd.Start()
}

func (w *watchdog) dismiss() {
	io.WriteString(w.leash, "dismissed\n")
	w.cmd.Wait()
}

// otherUser is the user that runs servers if this process is root's.
func otherUser() (uid, gid uint32, needed bool, err error) {
	if os.Geteuid() != 0 {
		return 0, 0, false, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, false, fmt.Errorf("databases don't run as root: %w", err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	group, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), true, errors.Join(err, err2)
}

// whoRuns names the user that must be able to reach a folder, for messages.
func whoRuns() string {
	if os.Geteuid() != 0 {
		return ""
	}
	return " (it runs as the user nobody, who must be able to reach the folder)"
}

// ownFolder makes a folder if it is missing, and gives it to the user that runs the server.
func ownFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	uid, gid, needed, err := otherUser()
	if err != nil || !needed {
		return dir, err
	}
	return dir, os.Chown(dir, int(uid), int(gid))
}

// forgetPostgres removes the one thing that a killed PostgreSQL leaves in the system:
// a few bytes of shared memory, which only its next start would remove.
func forgetPostgres(s *Server) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return // it ended in good order
	}
	for line := range strings.Lines(string(text)) {
		var key, id int
		if n, _ := fmt.Sscanf(line, "%d %d", &key, &id); n == 2 {
			unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}
}
