package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// runningServer is an lk serve.
type runningServer struct {
	cmd   *exec.Cmd
	url   string // lk://...
	log   string // the file of its log
	ended chan error
}

// startServer starts lk serve on a free port, with these flags, in a folder, and
// waits until it is ready.
func startServer(t *testing.T, folder string, flags ...string) *runningServer {
	t.Helper()
	s := &runningServer{log: filepath.Join(folder, "log"), ended: make(chan error, 1)}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("lk", append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json"}, flags...)...)
	s.cmd.Dir, s.cmd.Stderr = folder, w
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			var record struct{ URL string }
			if json.Unmarshal(lines.Bytes(), &record) == nil && record.URL != "" {
				ready <- record.URL
			}
		}
		log.Close()
		s.ended <- s.cmd.Wait()
	}()
	if s.url = <-ready; s.url == "" {
		text, _ := os.ReadFile(s.log)
		t.Fatalf("lk serve %s: %v\n%s", strings.Join(flags, " "), <-s.ended, text)
	}
	return s
}

// stop ends the server by TERM, as a service manager does.
func (s *runningServer) stop(t *testing.T) {
	t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	if err := <-s.ended; err != nil {
		text, _ := os.ReadFile(s.log)
		t.Errorf("lk serve: %v\n%s", err, text)
	}
}

// lk serve notifies the service manager when it is ready and when it stops.
func TestServeTellsSystemd(t *testing.T) {
	folder := t.TempDir()
	socket := filepath.Join(folder, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Skip(err)
	}
	defer manager.Close()
	manager.SetDeadline(time.Now().Add(patience))
	heard := func() string {
		t.Helper()
		buffer := make([]byte, 1000)
		n, err := manager.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	s := startServer(t, folder, "--engine", "mem:")
	if text := heard(); !strings.HasPrefix(text, "READY=1\nSTATUS=lk serves mem: on ") {
		t.Errorf("got %q", text)
	}
	s.stop(t)
	if text := heard(); text != "STOPPING=1" {
		t.Errorf("got %q", text)
	}
}

// stuckEngine answers no claim before the server gives up.
type stuckEngine struct {
	lockkeeper.Engine
	asked chan struct{}
}

func (e stuckEngine) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt = false
	return g
}

func (e stuckEngine) Claim(ctx context.Context, _ lockkeeper.Key, _ lockkeeper.Want) (lockkeeper.Status, error) {
	close(e.asked)
	<-ctx.Done()
	return lockkeeper.Status{}, ctx.Err()
}

// The first signal lets calls finish; a second one ends the server at once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	within, err := lockkeeper.Open(t.Context(), "mem:")
	if err != nil {
		t.Fatal(err)
	}
	defer within.Close()
	e := stuckEngine{within, make(chan struct{})}
	a := &app{stderr: io.Discard}
	listeners, err := endpoint{text: "127.0.0.1:0"}.all(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{app: a, log: slog.New(slog.DiscardHandler), wire: server.New(e, server.Options{})}
	go s.wire.Serve(listeners[0])
	there, err := lockkeeper.Open(t.Context(), remote.URL(listeners[0].Addr().String(), false))
	if err != nil {
		t.Fatal(err)
	}
	client := lockkeeper.New(there)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go client.Lock(ctx, "db")
	<-e.asked
	signals := make(chan os.Signal, 2)
	signals <- os.Interrupt
	signals <- syscall.SIGTERM
	began := time.Now()
	err = s.awaitEnd(signals, nil)
	var end *exit
	if !errors.As(err, &end) || end.code != exitSignal+int(syscall.SIGTERM) || time.Since(began) > drainTime/2 {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	s.wire.Shutdown(ended)
}
