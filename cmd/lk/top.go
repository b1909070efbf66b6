package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
	"github.com/lockkeeper/lockkeeper/internal/top"
)

func (a *app) newTop() *cobra.Command {
	return &cobra.Command{
		Use:        "top [URL]",
		SuggestFor: []string{"ui", "tui", "dashboard", "htop"},
		Short:      "Show holders and waiters live, and act on them",
		Long: `Show the tree of paths with holders, waiters and freezes on the whole terminal, as they
change. URL names the engine, as --engine does.

Keys: ? lists them, / filters, Enter shows the queue of a path, w says why it is not free,
x revokes a claim, f freezes a path, p one that you type, t ends a freeze, q quits. What an
operator does is confirmed first, with the reason.

Over a server of a cluster it shows who leads and how many voters are reached, and alarms;
n shows the nodes. The rules must let you look at everything.

While the engine can't be reached, lk top shows the last state as old, with its age, and
goes on when the engine is back. Without a terminal see lk ls --watch.`,
		Example: `  # the locks of this machine
  lk top

  # those of a server
  lk top lk://locks.example.com`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			if len(args) > 1 {
				a.bad.addf("%s: it is used as %q", plural(len(args), "argument"), cmd.UseLine())
			} else if len(args) == 1 {
				a.engineArg = args[0]
			}
			if a.screenSize() == nil || !term.IsTerminal(int(os.Stdin.Fd())) {
				a.bad.addf("it needs a terminal that can move its cursor: lk ls --watch prints the list anywhere")
			}
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context()) }),
	}
}

// top shows the claims until a person quits.
func (a *app) top(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, over := stoppedBy(ctx, signals, anySignal)
	err := a.runTop(ctx)
	if stopped := over(); stopped != nil {
		return stopped
	}
	return err
}

func (a *app) runTop(ctx context.Context) error {
	client, err := a.awaitFile(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	messages := make(chan any)
	send := func(message any) {
		select {
		case messages <- message:
		case <-ctx.Done():
		}
	}
	first, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		read := false
		failed <- listing.Follow(ctx, client, lockkeeper.Query{}, func(r listing.Reading) error {
			if !read {
				close(first)
				read = true
			}
			send(r)
			return nil
		})
		end()
	}()
	select {
	case <-first:
	case err := <-failed: // before the screen is ours: a plain error
		return err
	}
	if server, ok := client.engine.(lockkeeper.ServerClient); ok {
		go followServer(ctx, server, send)
	}
	words := top.Words{
		Title: lockkeeper.RedactURL(client.url),
		Claim: topClaim,
		Why:   topWhy,
		Old:   readingText,
		May:   func(act top.Act) error { return mayAct(client.Guarantees(), act) },
	}
	terminal := top.Terminal{In: os.Stdin, Out: os.Stdout, To: a.stdout, Color: os.Getenv("NO_COLOR") == ""}
	err = top.Run(ctx, terminal, top.New(words), messages, func(act top.Action) string { return a.act(ctx, act) })
	end()
	return errors.Join(err, <-failed)
}

// topClaim describes a claim at one of its targets, in the words of lk ls and lk why.
func topClaim(s lockkeeper.Status, g lockkeeper.Grant) (state, mode, owner, why string) {
	state, why = stateText(s), strings.TrimSpace(s.Note+" "+s.Link)
	switch {
	case s.State == lockkeeper.Waiting:
		s.Position = 0
		why = waitLine(s)
	case s.Asked != nil:
		why = strings.TrimPrefix(askText(s.Asked), ", ")
	}
	return state, modeText(g.Target), who(s.Label, s.Ref), why
}

func topWhy(path lockkeeper.Path, all []lockkeeper.Status) string {
	var text bytes.Buffer
	if err := writeWhy(&text, path, all); err != nil {
		return err.Error()
	}
	return text.String()
}

func mayAct(g lockkeeper.Guarantees, act top.Act) error {
	feature := lockkeeper.FeatureFreeze
	if act == top.Revoke {
		feature = lockkeeper.FeatureRevoke
	}
	if err := g.RefuseWithout(feature); err != nil {
		return errors.New(words(err))
	}
	return nil
}

// actBound bounds an action: then its outcome is unknown.
const actBound = 10 * time.Second

// act does what the operator confirmed, on a connection of its own, since the one that reads may be
// read-only. It returns the outcome for the operator.
func (a *app) act(ctx context.Context, act top.Action) string {
	ctx, cancel := context.WithTimeout(ctx, actBound)
	defer cancel()
	err := a.doAct(ctx, act)
	switch {
	case errors.Is(err, lockkeeper.ErrNotHeld):
		return "it has just ended by itself"
	case err != nil:
		return "not done: " + words(err)
	case act.Act == top.Revoke:
		return "revoked: " + act.Note
	case act.Act == top.Freeze:
		return "frozen for " + duration.Text(act.For) + ": " + string(act.Path)
	}
	return "thawed: " + string(act.Path)
}

func (a *app) doAct(ctx context.Context, act top.Action) error {
	a.makesNothing, a.readOnly = true, false
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	by := lockkeeper.Label{As: userAtHost(), Note: act.Note}
	switch act.Act {
	case top.Revoke:
		return client.Revoke(ctx, act.Ref, false, by)
	case top.Freeze:
		return client.Freeze(ctx, string(act.Path), act.For, by)
	}
	return client.Thaw(ctx, string(act.Path), by)
}

// The pause between two questions about the state of the server, which may take serverPause, and about
// that of a node of a cluster.
const (
	serverPause = 5 * time.Second
	nodePause   = 2 * time.Second
)

// followServer sends a line about the server and the state of its cluster, as far as they have something
// to say, until ctx ends.
func followServer(ctx context.Context, server lockkeeper.ServerClient, send func(any)) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, serverPause)
		state, err := server.About(asking)
		cancel()
		text, pause := "", serverPause // an engine that can't be reached is the subject of another line
		var cluster top.Cluster
		if err == nil {
			text = serverLine(state)
		}
		if state.Cluster != nil {
			cluster, pause = topCluster(state.Cluster), nodePause
		}
		send(top.Server(text))
		send(cluster)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// topCluster describes a cluster in the words of lk cluster ls.
func topCluster(s *lockkeeper.ClusterStatus) top.Cluster {
	var nodes bytes.Buffer
	_ = drawNodes(&nodes, s) // a buffer takes everything
	return top.Cluster{Line: clusterLine(s), Alarms: s.Alarms, Nodes: nodes.String()}
}

// serverLine: "engine cluster, 12 sessions, 3 connections; you are ann".
func serverLine(s lockkeeper.ServerState) string {
	text := fmt.Sprintf("engine %s, %s, %s", s.Engine, plural(int(s.Sessions), "session"),
		plural(int(s.Connections), "connection"))
	if s.Identity != "" {
		text += "; you are " + s.Identity
	}
	if s.Draining != "" {
		text += "; DRAINING: " + s.Draining
	}
	if s.ClaimsRefused != "" {
		text += "; NO CLAIMS: " + s.ClaimsRefused
	}
	return text
}
