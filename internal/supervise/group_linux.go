package supervise

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock counts while the computer sleeps, and is the same to all processes.
const bootClock = unix.CLOCK_BOOTTIME

// group is a process group.
type group struct {
	number int
	leader int    // a pidfd of its leader, dead or alive; 0: none
	began  uint64 // start time of its leader, from /proc; 0: unknown
}

// openGroup must be called before the group's leader is reaped: afterwards the kernel may reuse the
// number.
func openGroup(number int) group {
	leader, err := unix.PidfdOpen(number, 0)
	if err != nil {
		leader = 0
	}
	began := uint64(0)
	if p, err := readProcess(number); err == nil && procIsOurs() {
		began = p.began
	}
	return group{number, leader, began}
}

// signalGroup has pidfd_send_signal reach the group of the process (Linux 6.9).
const signalGroup = 1 << 2

// signal sends s to all of the group. The file excludes another group that has the number by now;
// older kernels know only numbers.
func (g group) signal(s syscall.Signal) error {
	if g.leader != 0 {
		err := unix.PidfdSendSignal(g.leader, s, nil, signalGroup)
		if err == nil || errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return unix.Kill(-g.number, s)
}

// runs reports whether any process of the group runs. Zombies do not; in a container nobody may ever
// reap them.
func (g group) runs() bool {
	if err := g.signal(0); errors.Is(err, unix.ESRCH) {
		return false
	}
	numbers, err := processes()
	if err != nil {
		return true
	}
	for _, number := range numbers {
		if p, err := readProcess(number); err == nil && p.group == g.number && !p.dead { // on an error it is gone
			return true
		}
	}
	return false
}

// waitReadable waits until in can be read or the boot clock shows until; 0 is
// never. The computer's sleep counts.
func waitReadable(in int, until time.Duration) {
	timer, err := unix.TimerfdCreate(bootClock, unix.TFD_CLOEXEC)
	if err != nil {
		pollReadable(in, until)
		return
	}
	defer unix.Close(timer)
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}
	if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		pollReadable(in, until)
		return
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: int32(timer), Events: unix.POLLIN}}, -1)
}

// awaitEnd waits until the process has ended or stopped, and reports whether it has ended. It does
// not reap the process, so the kernel can't reuse its number and that of its group.
func awaitEnd(pid int) (bool, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return info.Code != cldStopped, err
		}
	}
}

// cldStopped is the code by which waitid reports a stop.
const cldStopped = 5
