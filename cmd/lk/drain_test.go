package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// drainingServer answers each request for its state with the next of these, and the last one again and again.
type drainingServer struct {
	lockkeeper.ServerClient
	answers []drainAnswered
}

type drainAnswered struct {
	state lockkeeper.ServerState
	err   error // nil: there is an answer; errMute: there is none
}

var errMute = errors.New("mute")

func (s *drainingServer) About(ctx context.Context) (lockkeeper.ServerState, error) {
	next := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if next.err == errMute {
		<-ctx.Done()
		next.err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ctx.Err()}
	}
	return next.state, next.err
}

// lk drain --wait takes only a refused connection, or another run of the server, for the end. It goes on while the
// server is silent or its connection breaks, and says in the end what is not known.
func TestDrainWaitsForTheEnd(t *testing.T) {
	unavailable := func(cause error) drainAnswered {
		return drainAnswered{err: &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}}
	}
	held := drainAnswered{state: lockkeeper.ServerState{Draining: "maintenance", Held: 1}}
	empty := drainAnswered{state: lockkeeper.ServerState{Draining: "maintenance"}}
	later := drainAnswered{state: lockkeeper.ServerState{Version: "v2"}}
	mute := drainAnswered{err: errMute}
	denied := drainAnswered{err: &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "no"}}
	broken := unavailable(errors.New("the connection broke"))
	refused := unavailable(errors.Join(fmt.Errorf("%w (is there a server?)", &net.OpError{Op: "dial", Net: "tcp",
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})))
	const ended, silent = "lk: the server has ended\n", "lk: the server does not answer; lk keeps asking\n"
	type answers []drainAnswered
	for name, c := range map[string]struct {
		answers answers
		code    int
		says    string
	}{
		"ends":      {answers{held, empty, broken, refused}, 0, "lk: 0 locks held, 0 waiting\n" + ended},
		"is silent": {answers{mute, mute, refused}, 0, silent + ended},
		"breaks":    {answers{broken, held, refused}, 0, ended},
		"breaks twice": {answers{broken, broken, held, refused}, 0, "lk: the server does not answer: the connection " +
			"broke; lk keeps asking\nlk: 1 lock held, 0 waiting\n" + ended},
		"begins again": {answers{broken, later}, 0,
			"lk: the server has ended; another one answers at its address, which runs v2\n"},
		"stays silent": {answers{held, mute}, exitNotAcquired, silent + "lk: not drained within 10s: the server does not " +
			"answer, and may not have ended; its last answer: 1 lock held, 0 waiting\n"},
		"stays busy": {answers{held}, exitNotAcquired,
			"lk: not drained within 10s: 1 lock held, 0 waiting; it goes on draining\n"},
		"refuses": {answers{denied}, exitDenied, "lk: denied: no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				a := &app{stderr: &said}
				code := 0
				err := a.awaitDrained(t.Context(), &drainingServer{answers: c.answers}, 10*time.Second, held.state)
				if err != nil {
					code = a.exitCode(err)
				}
				if code != c.code || said.String() != c.says {
					t.Errorf("exit code %d, want %d; it says %q, want %q", code, c.code, said.String(), c.says)
				}
			})
		})
	}
}
