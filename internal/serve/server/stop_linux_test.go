package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

const stopTTL = time.Second

// A server stands still for longer than sessions live, under load. Every holder knows of its loss
// before another claim is granted.
func TestStoppedServer(t *testing.T) {
	t.Parallel() // most of it is waiting for TTLs
	seed := testmode.Seed(t)
	for _, kind := range []string{"mem", "disk"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0", kind, t.TempDir())
			c := stress.New(seed, history.RulesOf(open(t, s.address).Guarantees()))
			join(t, c, s.address, 4, 2, stopTTL)
			holder := lockkeeper.New(open(t, s.address), lockkeeper.SessionTTL(stopTTL))
			defer holder.Close()
			for round, slow := 0, 0; round < 3; round++ {
				awaitGrants(c, 20)
				h, err := holder.Lock(t.Context(), "held")
				if err != nil {
					t.Fatal(err)
				}
				s.Signal(syscall.SIGSTOP)
				select {
				case <-h.Done():
				case <-time.After(patience):
					t.Fatal("the holder does not learn that its server is gone")
				}
				switch err := h.Err(); {
				case errors.Is(err, lockkeeper.Suspended) && slow < 5: // this process stood still too: once more
					slow++
					round--
				case !errors.Is(err, lockkeeper.ErrLost) || !errors.Is(err, lockkeeper.Unreachable):
					t.Errorf("the holder's error: %v", err)
				}
				s.Signal(syscall.SIGCONT)
				awaitGrants(c, 20)
				judged(t, c, fmt.Sprintf("after stop %d", round+1))
				c.Resume()
			}
			c.Pause()
			t.Log(c)
			if err := stress.CheckFree(open(t, s.address), patience); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// awaitGrants waits until the load has that many more grants.
func awaitGrants(c *stress.Load, more int64) {
	end := time.Now().Add(patience)
	for enough := c.Granted.Load() + more; c.Granted.Load() < enough && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
}

// A store is the resource behind a lock: the holder of the lock writes to it. It refuses a write with a
// smaller fence than it has seen.
type store struct {
	net.Listener
	mu               sync.Mutex
	highest          uint64
	written, refused int
}

func startStore(t *testing.T) *store {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	s := &store{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return s
}

func (s *store) serve(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		fence, _ := strconv.ParseUint(lines.Text(), 10, 64)
		s.mu.Lock()
		answer := "written"
		if fence < s.highest {
			s.refused++
			answer = "refused"
		} else {
			s.highest = fence
			s.written++
		}
		s.mu.Unlock()
		fmt.Fprintln(c, answer)
	}
}

func init() { parts["writer"] = playWriter }

// playWriter locks, checks its lock, may stop its own process, and then writes without a second
// check, as a program that is stopped between the two does. After the write it checks again: it
// must know of the loss.
func playWriter(args []string) error {
	ctx := context.Background()
	e, err := remote.Open(ctx, args[0])
	if err != nil {
		return err
	}
	writes, err := net.Dial("unix", args[1])
	if err != nil {
		return err
	}
	answers := bufio.NewReader(writes)
	c := lockkeeper.New(e, lockkeeper.SessionTTL(stopTTL))
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		h, err := c.Lock(ctx, "store")
		if err != nil {
			fmt.Println("nothing", err)
			continue
		}
		lost := h.Done()
		looked := h.Err()
		fmt.Println("held", h.Fence(), h.Unconfirmed())
		if commands.Text() == "stand still" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			commands.Scan() // the signal may stop another thread first
		}
		if looked == nil {
			fmt.Fprintln(writes, h.Fence())
			answer, err := answers.ReadString('\n')
			if err != nil {
				return err
			}
			fmt.Println("write", strings.TrimSpace(answer))
		}
		knows := h.Err()
		if errors.Is(knows, lockkeeper.ErrLost) {
			<-lost // the context ends too, and at once
		}
		fmt.Println("looked", knows)
		_ = h.Release(ctx)
	}
	return nil
}

// Holders are stopped past their TTL, between the check of their lock and their write. Meanwhile
// another claim is granted. The store refuses the late write by its fence, and the holder knows of
// the loss as soon as it runs again.
func TestStoppedHolder(t *testing.T) {
	t.Parallel() // most of it is waiting for TTLs
	for _, kind := range []string{"mem", "disk"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0", kind, t.TempDir())
			written := startStore(t)
			a := roles.Start(t, "writer", s.address, written.Addr().String())
			b := roles.Start(t, "writer", s.address, written.Addr().String())
			const rounds = 3
			for range rounds {
				fmt.Fprintln(a.In, "stand still")
				stale := a.Read("held")
				// b waits until a's session has ended, and is granted by the rules.
				fmt.Fprintln(b.In, "go on")
				fresh := b.Read("held")
				if late, next := fenceOf(t, stale), fenceOf(t, fresh); next <= late {
					t.Errorf("fence %d after %d", next, late)
				}
				if b.Read("write") != "written" {
					t.Error("the write of the present holder is refused")
				}
				if knows := b.Read("looked"); knows != "<nil>" {
					t.Errorf("the present holder has lost it: %s", knows)
				}
				a.Signal(syscall.SIGCONT)
				fmt.Fprintln(a.In, "write now")
				if answer := a.Read("write"); answer != "refused" {
					t.Errorf("the write of the former holder is %s", answer)
				}
				if knows := a.Read("looked"); !strings.Contains(knows, lockkeeper.ErrLost.Error()) {
					t.Errorf("the former holder, which was stopped, gets the error %s", knows)
				}
			}
			if written.refused != rounds || written.written != rounds {
				t.Errorf("%d writes were refused and %d done, want %d and %d", written.refused, written.written, rounds, rounds)
			}
			t.Logf("%d late writes were refused", written.refused)
		})
	}
}

func fenceOf(t *testing.T, held string) (fence uint64) {
	t.Helper()
	var unconfirmed bool
	if _, err := fmt.Sscan(held, &fence, &unconfirmed); err != nil {
		t.Fatal(err)
	}
	if unconfirmed {
		t.Errorf("a grant is unconfirmed: %s", held)
	}
	return fence
}
