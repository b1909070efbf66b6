package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startBound = 30 * time.Second // for a server to answer for the first time
	stopBound  = 5 * time.Second  // for a server to end by itself
)

// process is a server that was started for this run alone. It ends with this
// process, however that ends: the kernel kills it if its parent dies.
type process struct {
	name  string
	pid   int
	addr  string     // where it listens
	forks bool       // its children do its work, one for each connection
	parts []*process // it stands for these: only its name and its cpu can be used
	in    io.WriteCloser
	out   *bufio.Reader // what it prints, if the caller reads it
	ended chan struct{}
	err   error // how it ended; read after ended
}

// launch starts a command. Its output goes to log, but standard output to
// process.out if asked is set.
func launch(cmd *exec.Cmd, log io.Writer, asked bool) (*process, error) {
	p := &process{name: cmd.Args[0], ended: make(chan struct{})}
	// A group of its own: ^C at the terminal is for the benchmark, which then
	// stops its servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = log, log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	if asked {
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		p.out = bufio.NewReader(out)
	}
	started := make(chan error)
	go func() {
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
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// stop asks the process to end, and ends it if it does not. nil is a process
// that was never started.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.in.Close()
	p.signal(syscall.SIGTERM)
	bound := time.NewTimer(stopBound)
	defer bound.Stop()
	select {
	case <-p.ended:
	case <-bound.C:
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

// signal sends a signal to a process that has not been waited for, so that its
// number is still its own.
func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		syscall.Kill(p.pid, s)
	}
}

// cpu is the processor time that the process has used, in user and kernel mode,
// to the nanosecond; with that of its children if they do its work, or that of its parts.
func (p *process) cpu() (time.Duration, error) {
	if p.parts != nil {
		return cpuOfAll(p.parts)
	}
	used, err := cpuOf(p.pid)
	if err != nil {
		return 0, fmt.Errorf("%s has ended: %w", p.name, err)
	}
	if p.forks {
		children, err := cpuOfChildren(p.pid)
		return used + children, err
	}
	return used, nil
}

func cpuOfAll(parts []*process) (used time.Duration, err error) {
	for _, part := range parts {
		one, err := part.cpu()
		if err != nil {
			return 0, err
		}
		used += one
	}
	return used, nil
}

func cpuOf(pid int) (time.Duration, error) {
	// CPUCLOCK_SCHED of a process, as the kernel's MAKE_PROCESS_CPUCLOCK makes it.
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &t)
	return time.Duration(t.Nano()), err
}

// cpuOfChildren is the processor time of the children of a process that has one
// thread: of those that live, to the nanosecond, and of those that it has buried.
func cpuOfChildren(pid int) (time.Duration, error) {
	living, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	used, err := cpuOfBuried(pid)
	for _, child := range strings.Fields(string(living)) {
		number, err := strconv.Atoi(child)
		if err != nil {
			return 0, err
		}
		if own, err := cpuOf(number); err == nil { // else it has ended just now
			used += own
		}
	}
	return used, err
}

// cpuOfBuried is that of children that have ended, to 10 ms.
func cpuOfBuried(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the first is the third of the line
	var ticks int64
	for _, field := range []int{16, 17} { // in user mode, in the kernel
		n, err := strconv.ParseInt(fields[field-3], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// ownCPU is the processor time of this process.
func ownCPU() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// ready calls ask again and again until it succeeds.
func (p *process) ready(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it answered", p.name)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", p.name, err)
		case <-again.C:
		}
	}
}

// freePorts finds ports of the loopback interface on which nobody listens now.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all are found, so that they differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// serveVar tells this program, started by itself, which server to be.
const serveVar = "LOCKKEEPER_BENCH_SERVER"

// launchSelf starts this program as one of its own servers, which prints where it
// listens, obeys lines of its standard input, and ends when that ends.
func launchSelf(kind string, at place) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveVar+"="+kind, dirVar+"="+at.dir)
	p, err := launch(cmd, at.log, true)
	if err != nil {
		return nil, err
	}
	p.name = "the server for " + kind
	line, err := p.out.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		p.stop()
		return nil, fmt.Errorf("%s did not say where it listens: %w", p.name, errors.Join(err, p.err))
	}
	p.addr = addr
	return p, nil
}
