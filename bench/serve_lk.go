package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/gctune"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// serveMemory is our server of an engine in memory.
func serveMemory(l net.Listener, _ string, ask <-chan string) error {
	return serveEngine(l, memlock.New(), ask)
}

// serveDisk is our server of an engine on disk.
func serveDisk(l net.Listener, dir string, ask <-chan string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	e, err := disklock.Open(ctx, filepath.Join(dir, "locks"))
	if err != nil {
		return err
	}
	return serveEngine(l, e, ask)
}

// serveEngine is what "lk serve" does, and answers every line by how many bytes
// the process has in use.
func serveEngine(l net.Listener, e lockkeeper.Engine, ask <-chan string) error {
	go func() {
		for range ask {
			fmt.Println(inUse())
		}
	}()
	gctune.Tune() // as "lk serve" does
	if err := server.New(e, server.Options{}).Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return err
	}
	return nil
}

// inUse is the memory that is in use by this process's Go code: what is reachable,
// and stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have kept for the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
