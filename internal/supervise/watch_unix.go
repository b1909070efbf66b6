//go:build unix

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watch is the state of a guard. Its orders are lines:
//
//	leave LK TTL ORDER    leave the session when lk and all of the command are dead;
//	                      LK is its process number
//	epoch N               the epoch of the session's latest attach
//	group N GRACE BEGAN   guard the process group N, whose leader started at BEGAN
//	                      (see mayDescend); ask it to stop GRACE before the end
//	end AT                the lease ends AT, by the boot clock
//	asked                 lk has sent TERM to the group
//
// Durations are in nanoseconds. The pipe ends when lk dies.
type watch struct {
	what     string
	group    group
	grace    time.Duration
	end      time.Duration // 0: unknown
	asked    bool
	farewell *order // nil: the TTL ends the session
	epoch    uint64
	rest     []byte // start of an order that has not arrived completely
	stderr   io.Writer
	leave    func(ctx context.Context, order []byte, epoch uint64)
}

// Guard is the whole life of the guard's process: it watches over the locks named what until the
// command has ended, and prints its messages to stderr. leave leaves the session of a killed lk; it
// gets Farewell.Order. Guard returns [ErrNoOrders] if lk did not start this process.
func Guard(what string, stderr io.Writer, leave func(ctx context.Context, order []byte, epoch uint64)) error {
	if !isPipe(os.Stdin) {
		return ErrNoOrders
	}
	// Only the end of lk ends the guard.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
		unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	closeInherited()
	w := watch{what: what, stderr: stderr, leave: leave}
	for {
		orphan := w.read()
		// All orders that have arrived are read, so a guard that stood still itself does not act on
		// an end that lk has postponed.
		now := bootTime()
		switch {
		case orphan && w.group.number == 0:
			return ErrNoOrders // or lk died before it started the command
		case orphan:
			w.kill()
			w.print("lk was killed, so its command was killed too")
			w.leaveSession()
			return nil
		case w.end != 0 && now >= w.end:
			w.kill()
			return nil
		case w.end != 0 && now >= w.ask() && !w.asked:
			w.asked = true
			w.group.signal(unix.SIGTERM)
			w.group.signal(unix.SIGCONT)
			go w.print("lk stands still, so its command was asked to stop before the lock ends")
		}
		w.wait()
	}
}

// ask returns when to send TERM: a little later than lk does, which reports it to the guard.
func (w *watch) ask() time.Duration { return w.end - w.grace + w.grace/5 }

// wait waits for the next order or deadline.
func (w *watch) wait() {
	next := w.end
	if w.end != 0 && w.grace > 0 && !w.asked {
		next = w.ask()
	}
	waitReadable(int(os.Stdin.Fd()), next)
}

// read carries out all orders that have arrived. It reports whether the pipe has ended.
func (w *watch) read() (orphan bool) {
	in := int(os.Stdin.Fd())
	_ = unix.SetNonblock(in, true) // nobody else has this end of the pipe
	buffer := make([]byte, 4096)
	for {
		n, err := unix.Read(in, buffer)
		switch {
		case n > 0:
			w.receive(buffer[:n])
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			return true
		}
	}
}

// receive carries out the orders in text, which may end within an order.
func (w *watch) receive(text []byte) {
	w.rest = append(w.rest, text...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return
		}
		w.rest = rest
		w.carryOut(string(line))
	}
}

func (w *watch) carryOut(order string) {
	verb, rest, _ := strings.Cut(order, " ")
	switch verb {
	case "leave":
		w.farewell = readOrder(rest)
	case "epoch":
		w.epoch, _ = strconv.ParseUint(rest, 10, 64)
	case "group":
		var number int
		var grace int64
		var began uint64
		fmt.Sscan(rest, &number, &grace, &began)
		w.group, w.grace = openGroup(number), time.Duration(grace)
		w.group.began = began // lk read it while the leader lived
	case "end":
		at, _ := strconv.ParseInt(rest, 10, 64)
		w.end = time.Duration(at)
	case "asked":
		w.asked = true
	}
}

// kill sends KILL until the group is gone. It can't kill processes of another user, and gives up on
// them at the end of the lease.
func (w *watch) kill() {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := w.group.signal(unix.SIGKILL)
		if !w.group.runs() || err != nil && bootTime() >= w.end {
			return
		}
		waitReadable(-1, bootTime()+pause)
	}
}

// print writes a line for the user, and waits at most a second for a reader.
func (w *watch) print(text string) {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		fmt.Fprintf(w.stderr, "lk: %s: %s\n", w.what, text)
	}()
	select {
	case <-printed:
	case <-time.After(time.Second):
	}
}

// closeInherited closes pipes and sockets that lk inherited. A pager, for example, would wait until
// the guard closes its pipe. Regular files stay open: by some of them the kernel knows the processes
// of a session.
func closeInherited() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // it is this process's own
		}
		var info unix.Stat_t
		if unix.Fstat(fd, &info) == nil && info.Mode&unix.S_IFMT != unix.S_IFREG {
			unix.Close(fd)
		}
	}
}

// pollReadable waits until in can be read or the boot clock shows until; 0 is never. It reads the
// clock every 250 ms, since the timers of most systems stand still while the computer sleeps.
func pollReadable(in int, until time.Duration) {
	for {
		timeout := -1
		if until != 0 {
			left := until - bootTime()
			if left <= 0 {
				return
			}
			timeout = int(min(left+time.Millisecond-1, 250*time.Millisecond) / time.Millisecond)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}, timeout)
		if n > 0 || err != nil {
			return
		}
	}
}

// isPipe reports whether f is a pipe.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}
