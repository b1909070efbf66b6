package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// forgetful is an engine that refuses the first renewal, so that the client attaches
// again, and reports the later calls.
type forgetful struct {
	lockkeeper.Engine
	leases chan uint64 // the epochs of leases that were given
	left   chan uint64 // the epochs under which a session was left

	forgot atomic.Bool
}

func (e *forgetful) Attach(
	ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status),
) (lockkeeper.Lease, error) {
	lease, err := e.Engine.Attach(ctx, s, notify)
	if err == nil {
		e.leases <- lease.Key.Epoch
	}
	return lease, err
}

func (e *forgetful) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if e.forgot.CompareAndSwap(false, true) {
		return lockkeeper.Lease{}, &lockkeeper.Error{Err: lockkeeper.ErrSession}
	}
	e.leases <- k.Epoch
	return e.Engine.Renew(ctx, k)
}

func (e *forgetful) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if ending.Kind == lockkeeper.Leave {
		e.left <- k.Epoch
	}
	return e.Engine.End(ctx, k, ending)
}

// cutter is a listener that can cut its connections.
type cutter struct {
	net.Listener
	accepted chan net.Conn
}

func (c *cutter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted <- conn
	}
	return conn, err
}

// lease returns the epoch of the next lease of the engine.
func (e *forgetful) lease(t *testing.T) uint64 {
	t.Helper()
	select {
	case epoch := <-e.leases:
		return epoch
	case <-time.After(patience):
		t.Fatal("no lease")
		return 0
	}
}

// The guard leaves under the epoch of the latest Attach, which is later than the one at its
// start.
func TestGuardLeavesUnderLatestEpoch(t *testing.T) {
	e := &forgetful{Engine: memlock.New(), leases: make(chan uint64, 8), left: make(chan uint64, 8)}
	defer e.Engine.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(e, server.Options{})
	c := &cutter{listener, make(chan net.Conn, 16)}
	go s.Serve(c)
	defer func() {
		ended, stop := context.WithCancel(context.Background())
		stop()
		s.Shutdown(ended)
	}()

	// This process adopts the orphans: the guard waits for all possible descendants of the command.
	folder := t.TempDir()
	cmd := exec.Command("adopt", "sh", "-c", `echo $$; exec lk run --ttl 60s db -- sh script`)
	cmd.Dir = folder
	script := []byte(`trap "echo usr1" USR1; echo held; while :; do await never & wait $!; done`)
	if err := os.WriteFile(filepath.Join(folder, "script"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), engineVariable+"=lk://"+listener.Addr().String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		os.WriteFile(filepath.Join(folder, "orphans-may-go"), nil, 0o600)
		cmd.Wait()
	}()
	var pid int
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("lk was not started")
	}
	fmt.Sscan(lines.Text(), &pid)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the command printed %q", lines.Text())
	}

	latest := e.lease(t)
	for known := false; !known; { // until lk renews under the epoch of another Attach, and so knows it
		(<-c.accepted).Close()
		epoch := e.lease(t)
		known = epoch == latest && epoch > 1
		latest = epoch
	}
	for range 2 { // by the second signal that lk passes on it has told its guard too
		unix.Kill(pid, unix.SIGUSR1)
		if !lines.Scan() || lines.Text() != "usr1" {
			t.Fatalf("the command printed %q", lines.Text())
		}
	}
	unix.Kill(pid, unix.SIGKILL)
	select {
	case epoch := <-e.left:
		if epoch != latest {
			t.Errorf("left under epoch %d, want %d", epoch, latest)
		}
	case <-time.After(patience):
		t.Error("the guard does not leave")
	}
}
