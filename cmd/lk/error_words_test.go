package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// Messages begin with the problem, not with names of calls and sentinels.
func TestErrorsArePrintedInWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7420},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	nowhere := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no such host")}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("--engine: %w", &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Cause: fmt.Errorf("%w (is there a server?)", refused)}),
			"--engine: can't be reached: 127.0.0.1:7420: connection refused (is there a server?)"},
		{&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errors.Join(refused, nowhere)},
			"can't be reached: 127.0.0.1:7420: connection refused; no such host"},
		{&lockkeeper.Error{
			Err:    lockkeeper.ErrUnavailable,
			Detail: "the database can't be used",
			Cause:  nowhere,
		}, "can't be reached: no such host"},
		{&lockkeeper.Error{
			Err:    lockkeeper.ErrDenied,
			Detail: "DIR belongs to another user: run this as the user of the server",
			Cause: &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "DIR/control.sock", Net: "unix"},
				Err: os.NewSyscallError("connect", syscall.EACCES)},
		}, "denied: DIR belongs to another user: run this as the user of the server: DIR/control.sock: permission denied"},
		{&lockkeeper.Error{
			Op:     "enqueue",
			Path:   "other",
			Err:    lockkeeper.ErrDenied,
			Detail: "ci may not lock other",
		}, "other: denied: ci may not lock other"},
		{&lockkeeper.Error{
			Op:     "grab",
			Path:   "y",
			Err:    lockkeeper.ErrUnavailable,
			Reason: lockkeeper.Draining,
			Detail: "maintenance",
		}, "y: the server is draining: maintenance"},
		{&lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: "this server speaks TLS"}, "this server speaks TLS"},
		{&lockkeeper.Error{
			Op:     "lock",
			Path:   "x",
			Err:    lockkeeper.ErrLost,
			Reason: lockkeeper.Stolen,
		}, "lock x: lock lost (stolen)"},
		{errors.New("plain"), "plain"},
	} {
		if got := words(c.err); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
