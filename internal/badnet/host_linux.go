package badnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host stands for another computer: a network namespace, which ends with this process at the latest.
// Use it only where [Alone] returns true.
type Host struct {
	space  *os.File
	cables []string
}

// Cable is a network between this process's namespace and a host's.
type Cable struct {
	Here, There string // the addresses of both ends

	host              *Host
	name              string // of the device at both ends
	hereMAC, thereMAC string
}

// NewHost makes a host without a network. Close ends it.
func NewHost() (*Host, error) {
	var h Host
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		h.space, err = threadSpace()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("no network namespace: %w", err)
	}
	if err := h.ip("link", "set", "lo", "up"); err != nil {
		h.Close()
		return nil, err
	}
	return &h, nil
}

// Close removes the cables and closes the namespace, which ends with its last process and socket.
func (h *Host) Close() {
	for _, name := range h.cables {
		_ = ip("link", "del", name) // it may be removed already
	}
	h.space.Close()
}

// cables is the number of cables that this process has made.
var cables atomic.Int32

// Cable connects the host by a new network. A process has names and addresses for 255.
func (h *Host) Cable() (*Cable, error) {
	number := cables.Add(1)
	c := &Cable{host: h, name: fmt.Sprint("cable", number)}
	h.cables = append(h.cables, c.name)
	// Addresses reserved for tests of networks (RFC 2544).
	c.Here, c.There = fmt.Sprintf("198.18.%d.1", number), fmt.Sprintf("198.18.%d.2", number)
	c.hereMAC, c.thereMAC = fmt.Sprintf("02:00:00:00:%02x:01", number), fmt.Sprintf("02:00:00:00:%02x:02", number)
	space := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.space.Fd())
	err := errors.Join(
		ip("link", "add", c.name, "address", c.hereMAC, "type", "veth", "peer", "name", c.name, "address", c.thereMAC,
			"netns", space),
		ip("addr", "add", c.Here+"/24", "dev", c.name),
		h.ip("addr", "add", c.There+"/24", "dev", c.name),
		c.Plug(),
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Lose drops all packets silently from now on, to here, to there, or both. Packets of the other
// direction arrive.
func (c *Cable) Lose(toHere, toThere bool) error {
	// Packets go to a hardware address that does not exist.
	const nowhere = "02:00:00:00:00:ff"
	here, there := c.hereMAC, c.thereMAC
	if toHere {
		here = nowhere
	}
	if toThere {
		there = nowhere
	}
	if err := ip("neigh", "replace", c.There, "lladdr", there, "dev", c.name, "nud", "permanent"); err != nil {
		return err
	}
	return c.host.ip("neigh", "replace", c.Here, "lladdr", here, "dev", c.name, "nud", "permanent")
}

// Unplug takes the device here down, so this side knows at once that it cannot send.
func (c *Cable) Unplug() error { return ip("link", "set", c.name, "down") }

// Plug takes the devices up and ends all losses.
func (c *Cable) Plug() error {
	if err := ip("link", "set", c.name, "up"); err != nil {
		return err
	}
	if err := c.host.ip("link", "set", c.name, "up"); err != nil {
		return err
	}
	return c.Lose(false, false)
}

// Listen listens on all addresses of the host. Port 0 chooses a port.
func (h *Host) Listen(port int) (l net.Listener, err error) {
	err = h.inside(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
		return err
	})
	return l, err
}

// Start starts a process on the host. It is killed when this process ends.
func (h *Host) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return h.inside(cmd.Start)
}

// inside calls do on a thread in the host's namespace.
func (h *Host) inside(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(h.space.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

func (h *Host) ip(args ...string) error {
	return h.inside(func() error { return ip(args...) })
}

// ip runs the ip command.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// onThread calls do on a locked thread, and restores the thread's namespace. If that fails, the
// goroutine keeps the thread for good: no other may run there, and if the thread ended, the kernel
// would kill all processes that it has started with a death signal.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := threadSpace()
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		err = do()
		back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
		home.Close()
		if back == nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		result <- errors.Join(err, fmt.Errorf("leave a network namespace: %w", back))
		select {}
	}()
	return <-result
}

// threadSpace returns the network namespace of this thread.
func threadSpace() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
}
