// Command lk runs a command while it holds locks, and shows holders and waiters.
//
//	lk run mydatabase/mytest -- go test ./...
//
// Each verb has a file of its own. All verbs share the choice of the engine (engine.go), exit codes
// (exit.go), bad usage (usage.go), and the words for claims (print.go).
package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/all"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// The main goroutine keeps the main thread: the kernel kills a child at
// the death of the thread that started it (internal/supervise), and lk stops itself
// by a signal that must arrive before the next statement runs.
func init() { runtime.LockOSThread() }

func main() { os.Exit(mainCode()) }

// mainCode is main without the exit of the process; tests run it as the program lk.
func mainCode() int {
	a := &app{
		args:   os.Args[1:],
		stdout: stdout,
		stderr: stderr,
		open:   lockkeeper.Open,
	}
	ctx, end := a.trace(context.Background())
	code := a.execute(ctx)
	end()
	if a.interrupt != nil {
		supervise.DieOf(a.interrupt, a.interruptGroup)
	}
	return code
}

// app is one run of lk: its arguments, its way out, and what verbs share.
type app struct {
	args           []string
	stdout, stderr io.Writer
	open           func(ctx context.Context, url string) (lockkeeper.Engine, error)

	engineFlag     string                                    // of --engine
	engineArg      string                                    // an engine that is named among the arguments
	within         bool                                      // an engine within this process will do
	makesNothing   bool                                      // neither a file nor tables are to be made
	readOnly       bool                                      // the engine must not change
	traceparent    string                                    // TRACEPARENT=… for children; "" if this is part of no trace
	traced         func(lockkeeper.Engine) lockkeeper.Engine // nil: nothing is traced here
	noted          sync.Once                                 // see noteSudo
	quiet          bool                                      // of --quiet: print no notes
	bad            problems                                  // all that is wrong with the arguments
	interrupt      os.Signal                                 // the terminal's, of which lk dies; nil: none
	interruptGroup bool                                      // and its whole group with it
}
