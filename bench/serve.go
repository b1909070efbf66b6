package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// dirVar tells a server of this program where it may write.
const dirVar = "LOCKKEEPER_BENCH_DIR"

// ownServers are what this program can be besides the benchmark, by serveVar.
// Each serves l until it fails, and may answer the lines of ask.
var ownServers = map[string]func(l net.Listener, dir string, ask <-chan string) error{
	"echo":  func(l net.Listener, _ string, _ <-chan string) error { return serveEcho(l) },
	"relay": func(l net.Listener, _ string, _ <-chan string) error { return serveRelay(l) },

	"http":    func(l net.Listener, _ string, _ <-chan string) error { return serveBareHTTP(l) },
	"lk-http": func(l net.Listener, _ string, _ <-chan string) error { return serveOverHTTP(l) },

	"follower": serveFollower,
	"quorum":   serveQuorum,

	"lk-memory": serveMemory,
	"lk-disk":   serveDisk,
}

// serve makes this process one of the servers if it was started as one, and
// reports whether it was.
func serve() (was bool) {
	kind := os.Getenv(serveVar)
	if kind == "" {
		return false
	}
	if err := serveKind(kind); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func serveKind(kind string) error {
	run := ownServers[kind]
	if run == nil {
		return fmt.Errorf("%s=%s: there is no such server", serveVar, kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// What ends a server of this program is the end of its standard input.
	signal.Ignore(syscall.SIGTERM)
	profiled, err := profile(os.Getenv(profileVar), kind)
	if err != nil {
		return err
	}
	ask, failed := make(chan string), make(chan error, 1)
	go func() { failed <- run(l, os.Getenv(dirVar), ask) }()
	fmt.Printf("listening on %s\n", l.Addr())
	over := make(chan struct{})
	go func() {
		defer close(over)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			ask <- in.Text()
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-over:
		return profiled()
	}
}
