package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// benchOptions are the arguments of lk bench.
type benchOptions struct {
	span    time.Duration // of everything
	clients []int
	paths   string // one of loadDistinct, loadOne; empty for both
	prefix  string
	flat    bool // the engine has no hierarchy
	asJSON  bool
}

const (
	benchSpan  = 6 * time.Second
	benchLeast = 100 * time.Millisecond // of one load
	mostLoad   = 4096                   // clients of one load, each of which counts in 15 kB
)

func (a *app) newBench() *cobra.Command {
	o := &benchOptions{span: benchSpan, clients: []int{1, 16, 128}}
	cmd := &cobra.Command{
		Use:        "bench [URL]",
		SuggestFor: []string{"benchmark", "measure", "perf", "speed"},
		Short:      "Measure the speed of an engine",
		Long: `Measure the engine of URL, else of --engine, from this machine. Compare only engines with the
same guarantees: the first line says what this one survives. Each measurement gets an equal
share of the time:

  from a release to the     time from the call of the release until the next waiter
  next holder               holds the lock; 3 clients, each with a connection if the
                            engine has connections
  a path for each client    pairs of lock and release a second, and the time that a lock
                            took, without waiting
  one path for all          the same on one path, and Jain's fairness index: 1 if all
                            shares are equal, 1/n if one of n clients has everything

The clients of the last two share one program and one connection, and lock again as soon as
they have released. p50 is the time that half of them did not exceed, p99 that of 99 in 100.
Percentiles are off by 1.6% at most; max is exact. The first tenth of each measurement, one
second at most, is not counted.

lk bench uses paths of its own and disturbs others only by the load. Ctrl-C ends it with the
results so far. It can also measure an engine within one process, such as mem:.`,
		Example: `  # the engine that the other verbs use
  lk bench

  # another engine, longer, with other numbers of clients
  lk bench sqlite:/var/tmp/bench.db --duration 1m --clients 1,4,64

  # one contended path
  lk bench --paths one

  # for a script
  lk bench --json | jq -r '[.load, .clients, .per_second] | @tsv'`,
		Args: a.checked(func(cmd *cobra.Command, args []string) { o.check(a, cmd, args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	addSpan(cmd, &a.bad, &o.span, "duration", benchLeast, "total time")
	f.Var(counts{&o.clients, &a.bad}, "clients", "numbers of concurrent clients, each measured")
	f.Var(choice[string]{&o.paths, &a.bad, "--paths", []string{loadDistinct, loadOne}}, "paths",
		"measure only a path for each client, or only one for all (default: both)")
	f.StringVar(&o.prefix, "prefix", "", "`PATH` above all measured paths (default: lk-bench/ and a random name)")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object a line, for each measurement; durations are in seconds")
	return cmd
}

// check reads the arguments and collects the problems.
func (o *benchOptions) check(a *app, cmd *cobra.Command, args []string) {
	a.within = true // an engine within this process excludes nobody, but can be measured
	switch {
	case len(args) > 1:
		a.bad.addf("%d engines: measure one after the other, so that they don't share the machine", len(args))
	case len(args) == 1 && a.engineFlag != "":
		a.bad.addf("two engines, %s and --engine %s: name one", lockkeeper.RedactURL(args[0]),
			lockkeeper.RedactURL(a.engineFlag))
	case len(args) == 1:
		a.engineArg = args[0]
	}
	if o.prefix == "" {
		o.prefix = "lk-bench/" + strings.ToLower(rand.Text()[:8])
	}
	o.prefix = string(a.path(o.prefix))
	if o.prefix != "" {
		a.path(o.path(loadDistinct, mostLoad))
	}
	if n := len(o.loads(nil)); n > 0 && o.span < time.Duration(n)*benchLeast {
		a.bad.addf("--duration %s is too short for %s: %s at least for each", o.span, plural(n, "measurement"), benchLeast)
	}
}

// path returns the path that client i of a load locks. For an engine without hierarchy it has one
// segment.
func (o *benchOptions) path(load string, i int) string {
	if load == loadDistinct {
		load += "/" + strconv.Itoa(i)
	}
	path := o.prefix + "/" + load
	if o.flat {
		path = strings.ReplaceAll(path, "/", ".")
	}
	return path
}

// loads returns the loads to measure, in order. Hand-offs use all clients, the other loads the
// first one.
func (o *benchOptions) loads(clients []*connection) (all []workload) {
	// Hand-offs come first: after the other loads the engine has thousands of claims that have just
	// ended, and a connection that opens then may have to read them all.
	if o.paths != loadDistinct {
		r := newRelay(o.path(loadHandOff, 0))
		all = append(all, workload{loadHandOff, handOffClients, func(w *load.Worker) error {
			return r.run(clients[w.Number].Client, w)
		}})
	}
	for _, name := range []string{loadDistinct, loadOne} {
		if o.paths != "" && o.paths != name {
			continue
		}
		for _, n := range o.clients {
			if name == loadOne && n == 1 && o.paths == "" {
				continue // the same as with a path for each
			}
			all = append(all, workload{name, n, func(w *load.Worker) error {
				return w.Turns(&clientLocker{client: clients[0].Client}, o.path(name, w.Number))
			}})
		}
	}
	return all
}

// bench runs the loads and writes each outcome at once.
func (a *app) bench(ctx context.Context, o *benchOptions) error {
	if !signal.Ignored(os.Interrupt) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	clients, err := a.benchClients(ctx)
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	if err != nil {
		return err
	}
	o.flat = clients[0].Guarantees().Features&lockkeeper.FeatureHierarchy == 0
	report := newBenchReport(a.stdout, clients[0], o)
	report.begin()
	loads := o.loads(clients)
	span := o.span / time.Duration(len(loads))
	for i, w := range loads {
		l := w.prepare(span)
		progress := a.benchProgress(w, l, time.Now().Add(time.Duration(len(loads)-i)*span))
		progress.start()
		out, err := w.measure(ctx, l)
		progress.stop()
		if out.Total() > 0 {
			report.add(out)
		}
		switch {
		case err != nil:
			report.end()
			return err
		case ctx.Err() != nil:
			report.end()
			return interrupted(os.Interrupt)
		case out.Total() == 0:
			fmt.Fprintf(a.stderr, "lk: nothing was done within %s: lk why %s tells whether somebody holds or has frozen it\n",
				brief(span), o.prefix)
		}
	}
	report.end()
	return nil
}

// benchClients connects the clients that take turns. Each has a connection of its own, unless the
// engine is within this process. With an error it returns the connections opened so far.
func (a *app) benchClients(ctx context.Context) ([]*connection, error) {
	var clients []*connection
	for len(clients) < handOffClients {
		c, err := a.connect(ctx, lockkeeper.SessionLabel(lockkeeper.Label{As: thisProcess(), Note: "lk bench"}))
		if err != nil {
			return clients, err
		}
		if clients = append(clients, c); c.Guarantees().Reach == lockkeeper.InProcess {
			return slices.Repeat(clients, handOffClients), nil
		}
	}
	return clients, nil
}

// benchProgress shows the present rate of a load on a terminal.
func (a *app) benchProgress(w workload, l *load.Load, end time.Time) *spinner {
	return &spinner{to: a.stderr, text: func() string {
		return fmt.Sprintf("%s, %s: %s/s, %s to go", w.load, plural(w.clients, "client"), grouped(l.PerSecond()),
			duration.Remaining(time.Until(end)))
	}}
}

// counts is the value of a flag that takes a list of numbers of clients.
type counts struct {
	to  *[]int
	bad *problems
}

func (c counts) String() string {
	if c.to == nil {
		return ""
	}
	var texts []string
	for _, n := range *c.to {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ",")
}

func (c counts) Type() string { return "N" }

// Set replaces the numbers.
func (c counts) Set(text string) error {
	var list []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > mostLoad {
			c.bad.addf("--clients takes numbers of 1 to %d, as in --clients 1,16,128, not %q", mostLoad, word)
			return nil
		}
		list = append(list, n)
	}
	*c.to = list
	return nil
}
