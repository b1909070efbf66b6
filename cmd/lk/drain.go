package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

const (
	drainLook   = time.Second     // the pause between two requests for the progress of a drain
	drainAnswer = 2 * time.Second // a server that has not answered such a request by then is silent
)

// drainOptions are the arguments of lk drain.
type drainOptions struct {
	unless string
	reason string
	wait   time.Duration
}

func (a *app) newDrain() *cobra.Command {
	o := &drainOptions{}
	cmd := &cobra.Command{
		Use:        "drain",
		SuggestFor: []string{"shutdown", "stop", "quit"},
		Short:      "End a server when its clients hold nothing",
		Long: `End a server when it is idle: it refuses new claims, with the reason. Holders can renew, and
waiters keep their positions and are granted in turn. When none of its clients holds or
waits, the process ends with exit code 0.

On a shared engine (a file, a database), the clients of a server are those connected to it,
and the names (lk grab) and HTTP claims renewed at it within their TTL. Claims made through
other servers, or directly at the engine, do not count: lk drain leaves them out of its counts,
and lk ls lists them too.

The URL names the one server. At a node of a cluster only that node drains; its clients go on
at the others.

With --unless-version V, nothing happens if the server runs version V; the exit code is then
` + fmt.Sprint(exitAlready) + `. So a deployment can always call it.

lk drain returns when the server has agreed; with --wait D when the server has ended, or with
exit code 75 after D. A server that is only silent has not ended: lk keeps asking. A server
that keeps its locks on disk need not be drained for a restart: holders find their locks when
it is back.`,
		Example: `  # before an upgrade of a server that keeps its locks in memory
  lk drain --unless-version v1.4.0 --wait 10m

  # with a reason for refused clients
  lk drain --note "this machine goes; use locks2"`,
		Args: a.checked(func(_ *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("%s: lk drain takes none; the server is named by --engine or %s", plural(len(args), "argument"),
					engineVariable)
			}
			if len(o.reason) > lockkeeper.MaxNoteBytes {
				a.bad.addf("--note has %d bytes: at most %d are allowed", len(o.reason), lockkeeper.MaxNoteBytes)
			}
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.drain(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.unless, "unless-version", "", "do nothing if the server runs version `V`")
	f.StringVar(&o.reason, "note", "", "`WHY`, for clients")
	addSpan(cmd, &a.bad, &o.wait, "wait", 0, "wait until the server has ended, at most D")
	return cmd
}

func (a *app) drain(ctx context.Context, o *drainOptions) error {
	client, err := a.connect(remote.OneServer(ctx))
	if err != nil {
		return err
	}
	defer client.Close()
	server, ok := client.engine.(lockkeeper.ServerClient)
	if !ok {
		return &exit{code: exitUsage, say: fmt.Errorf("%s is no server: only a server can be drained, such as %s",
			lockkeeper.RedactURL(client.url), remote.URL(fmt.Sprintf("127.0.0.1:%d", serverPort), false))}
	}
	about, err := server.Drain(ctx, o.reason, o.unless)
	switch {
	case err != nil:
		return err
	case about.Already:
		return &exit{code: exitAlready, say: fmt.Errorf("not drained: the server runs %s already", about.Version)}
	}
	begun := "drains"
	if !about.Began {
		begun = "was draining already"
	}
	fmt.Fprintf(a.stderr, "lk: the server %s: %s held, %d waiting; it ends when its clients have none\n",
		begun, plural(int(about.Held), "lock"), about.Waiting)
	if o.wait == 0 {
		return nil
	}
	return a.awaitDrained(ctx, server, o.wait, about)
}

// awaitDrained waits until the server has ended, and prints its progress when it changes. After the end its host
// refuses connections, or another run of it answers, which does not drain. A server that is silent and a connection
// that breaks prove nothing: the server may go on, with all locks of its clients.
func (a *app) awaitDrained(ctx context.Context, server lockkeeper.ServerClient, bound time.Duration,
	last lockkeeper.ServerState) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	var silent error // of the last request; nil if it was answered
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return notDrained(bound, last, silent)
		}
		asked := time.Now()
		about, err := askDraining(ctx, server)
		switch {
		case ctx.Err() != nil:
			if time.Since(asked) >= drainLook {
				silent = err
			}
		case refusesConnections(err):
			fmt.Fprintln(a.stderr, "lk: the server has ended")
			return nil
		case err == nil && about.Draining == "":
			fmt.Fprintf(a.stderr, "lk: the server has ended; another one answers at its address, which runs %s\n", about.Version)
			return nil
		case errors.Is(err, lockkeeper.ErrUnavailable):
			if silent == nil {
				fmt.Fprintf(a.stderr, "lk: %s; lk keeps asking\n", silence(err))
			}
			silent = err
		case err != nil:
			return err
		case silent != nil, about.Held != last.Held, about.Waiting != last.Waiting:
			fmt.Fprintf(a.stderr, "lk: %s held, %d waiting\n", plural(int(about.Held), "lock"), about.Waiting)
			last, silent = about, nil
		}
	}
}

// askDraining asks the server for its state. If the connection has broken since the last request, it asks again, since
// only a new connection shows whether there is a server.
func askDraining(ctx context.Context, server lockkeeper.ServerClient) (about lockkeeper.ServerState, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainAnswer)
	defer cancel()
	about, err = server.About(ctx)
	if errors.Is(err, lockkeeper.ErrUnavailable) && ctx.Err() == nil && !refusesConnections(err) {
		return server.About(ctx)
	}
	return about, err
}

// wsaRefused is ECONNREFUSED of Windows. No other system has an error of that number.
const wsaRefused = syscall.Errno(10061)

// refusesConnections reports whether err says that nothing listens at the address of the server.
func refusesConnections(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaRefused)
}

// silence says how a server failed to answer.
func silence(err error) string {
	const text = "the server does not answer"
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return text
	}
	return text + ": " + words(err)
}

// notDrained is the end of a wait with that bound. last is the last answer of the server; silent is why there is no
// later one, or nil.
func notDrained(bound time.Duration, last lockkeeper.ServerState, silent error) error {
	state := fmt.Sprintf("%s held, %d waiting", plural(int(last.Held), "lock"), last.Waiting)
	text := state + "; it goes on draining"
	if silent != nil {
		text = silence(silent) + ", and may not have ended; its last answer: " + state
	}
	return &exit{code: exitNotAcquired, say: fmt.Errorf("not drained within %s: %s", duration.Text(bound), text)}
}
