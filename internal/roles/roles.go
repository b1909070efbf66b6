// Package roles has the binary of a test play the other processes of the test: it is
// started once more, with a role to play and that role's arguments.
package roles

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Variable is the one of the environment that names the role of a process.
const Variable = "LOCKKEEPER_TEST_ROLE"

// Play plays the role that this process was started for, with the arguments of its command
// line, and ends the process. In a process that was not started for one it does nothing. A
// TestMain calls it first.
func Play(roles map[string]func(args []string) error) {
	name, given := os.LookupEnv(Variable)
	if !given {
		return
	}
	play := roles[name]
	if play == nil {
		fmt.Println("error", "there is no role", name)
		os.Exit(1)
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is another process of a test. It is killed when the test ends, however that
// comes. Its methods are for one goroutine, but for Signal and Kill.
type Process struct {
	Cmd *exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader

	t    testing.TB
	end  sync.Once
	gone chan struct{} // closed when it has been reaped
}

// Start starts a process that plays a role.
func Start(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	// A process of the race detector else sleeps for a second before it ends.
	cmd.Env = append(os.Environ(), Variable+"="+role, "GORACE=atexit_sleep_ms=0")
	return StartCommand(t, cmd)
}

// StartCommand starts cmd, whatever that is, as another process of the test.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.Stderr = os.Stderr
	bind(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Cmd: cmd, In: in, Out: bufio.NewReader(out), t: t, gone: make(chan struct{})}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// start starts the process on a thread that lives as long as the process. The system sends the signal
// of bind when the thread ends that started the process, and Go ends threads: that of a goroutine
// that ends while it is locked to its thread. So this one gives the thread back, which may have
// started other processes before.
func (p *Process) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.Cmd.Start()
		started <- err
		if err == nil {
			<-p.gone
		}
	}()
	return <-started
}

// Send sends p a line of words.
func (p *Process) Send(words ...string) { fmt.Fprintln(p.In, strings.Join(words, " ")) }

// ReadLine reads the next line of p, as a word and what follows; "" if p has ended.
func (p *Process) ReadLine() (word, rest string) {
	line, _ := p.Out.ReadString('\n')
	if !strings.HasSuffix(line, "\n") {
		p.reap()
		return "", ""
	}
	word, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	return word, rest
}

// Read returns what follows the word in the next line of p, which must begin with it.
func (p *Process) Read(word string) (rest string) {
	p.t.Helper()
	line, err := p.Out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("process %d: waiting for %q: %v", p.Cmd.Process.Pid, word, err)
	}
	rest, found := strings.CutPrefix(strings.TrimSpace(line), word)
	if !found {
		p.t.Fatalf("process %d says %q, want %q", p.Cmd.Process.Pid, line, word)
	}
	return strings.TrimSpace(rest)
}

// Signal sends p a signal, if it has not ended. It does not wait for what comes of that.
func (p *Process) Signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) }

// Kill ends p as kill -9 does, and returns when it is gone. What p has said and nobody has read
// is lost.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	p.reap()
}

// Wait waits until p has ended by itself, which must be without an error.
func (p *Process) Wait() {
	p.t.Helper()
	out, _ := io.ReadAll(p.Out)
	if err := p.reap(); err != nil {
		p.t.Errorf("process %v: %v\n%s", p.Cmd.Args[1:], err, out)
	}
}

func (p *Process) reap() (err error) {
	p.end.Do(func() {
		err = p.Cmd.Wait()
		close(p.gone)
	})
	return err
}
