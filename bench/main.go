// The command bench measures lock servers and Lockkeeper's own side by side, and
// beside limits: small programs that lock nothing but do what any server of the
// kind has to do at the least. It promises nothing about absolute figures: only
// ratios within one run mean something. It runs on Linux.
//
// README.md says how to run and how to read it.
package main

//go:generate go run . -read run.json -document ../docs/performance.md

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	if serve() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// outputs are the files that a run is written to, beside the terminal.
type outputs struct {
	json, document, profile string
	update                  bool // of json
}

func command(ctx context.Context, args []string) error {
	p := &plan{log: io.Discard, progress: progress, sizes: ourSizes()}
	var out outputs
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	install := flags.Bool("setup", false, "install what is measured and missing (apt-get for Redis, Postgres and "+
		"MariaDB, the Go proxy for etcd), and exit")
	read := flags.String("read", "", "measure nothing: take the run that -json has written to this `file`")
	list := flags.Bool("list", false, "list peers and workloads, and exit")
	verbose := flags.Bool("v", false, "show what the servers print")
	chosen := flags.String("peers", "", "measure only peers whose names match this `pattern`, and the references")
	work := flags.String("workloads", "", "run only workloads whose names match this `pattern`")
	flags.IntVar(&p.rounds, "rounds", 5, "rounds of each peer and workload")
	flags.DurationVar(&p.timing.Run, "time", time.Second, "how long a round is counted")
	flags.DurationVar(&p.timing.Warm, "warm", 300*time.Millisecond, "how long it goes on before that")
	flags.DurationVar(&p.timing.Keep, "keep", time.Millisecond, "for how long a holder keeps it in hand-off")
	flags.IntVar(&p.timing.Batch, "batch", 32, "paths in a batch")
	flags.DurationVar(&p.timing.Bench, "bench", 200*time.Millisecond, "how long a Go benchmark goes on in a round")
	flags.IntVar(&p.claims, "claims", 100_000, "claims with which memory is measured")
	flags.IntVar(&p.sizes.Claim, "claim", p.sizes.Claim, "`bytes` of the limits' request that acquires")
	flags.IntVar(&p.sizes.Claimed, "claimed", p.sizes.Claimed, "`bytes` of its answer")
	flags.IntVar(&p.sizes.End, "end", p.sizes.End, "`bytes` of the limits' request that releases")
	flags.IntVar(&p.sizes.Ended, "ended", p.sizes.Ended, "`bytes` of its answer")
	flags.StringVar(&p.dir, "dir", "", "make temporary folders in this `folder`, which must be on a disk for durable "+
		"peers to mean something")
	flags.BoolVar(&p.must, "must", false, "fail if a peer is not installed")
	flags.StringVar(&out.profile, "profile", "",
		"leave profiles of the processor time of the clients, and of the servers that are ours, in this `folder`")
	flags.StringVar(&out.json, "json", "", "write every round to this `file` too")
	flags.BoolVar(&out.update, "update", false, "keep what the file of -json has of workloads and peers that are not "+
		"measured now")
	flags.StringVar(&out.document, "document", "", "write the tables into the marked parts of this `file` too")
	flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q: all is said by flags, see -help", flags.Arg(0))
	}
	var err error
	if p.peers, err = pattern(*chosen); err != nil {
		return err
	}
	if p.workloads, err = pattern(*work); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if *verbose {
		p.log = os.Stderr
	}
	switch {
	case *install:
		return setup(ctx)
	case *list:
		return p.list(os.Stdout)
	case *read != "":
		r, err := readRun(*read)
		if err != nil {
			return err
		}
		return r.write(out)
	}
	return p.report(ctx, out)
}

// pattern is nil for no pattern.
func pattern(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	return regexp.Compile(text)
}

// check refuses what can't be run.
func (p *plan) check() error {
	if p.rounds < 1 || p.timing.Run <= 0 || p.timing.Batch < 1 || p.claims < 1 || p.timing.Bench <= 0 ||
		p.timing.Warm < 0 || p.timing.Keep < 0 {
		return fmt.Errorf("%d rounds of %s, batches of %d, %d claims: there must be some of each", p.rounds, p.timing.Run,
			p.timing.Batch, p.claims)
	}
	const most = 1 << 20
	for _, size := range []int{p.sizes.Claim, p.sizes.Claimed, p.sizes.End, p.sizes.Ended} {
		if size < echoHeader || size > most {
			return fmt.Errorf("a frame of %d bytes is out of range: %d to %d", size, echoHeader, most)
		}
	}
	return nil
}

func (p *plan) list(to io.Writer) error {
	for _, peer := range peers(p.sizes) {
		a := peer.about()
		fmt.Fprintf(to, "%-28s %s\n", a.name, a.how)
		if a.lacks != nil {
			if err := a.lacks(); err != nil {
				fmt.Fprintf(to, "%-28s %s\n", "", err)
			}
		}
	}
	fmt.Fprintf(to, "%s\n%s\n%s\n", memoryName, benchmarksName, startsName)
	for _, w := range workloads {
		if _, err := fmt.Fprintf(to, "%-28s reference: %s\n", w.name(), w.Reference); err != nil {
			return err
		}
	}
	return nil
}

// report runs the plan and writes what came of it.
func (p *plan) report(ctx context.Context, out outputs) error {
	os.Setenv(profileVar, out.profile) // for the servers
	profiled, err := profile(out.profile, "clients")
	if err != nil {
		return err
	}
	r, err := p.run(ctx)
	p.progress("")
	if err := errors.Join(err, profiled()); err != nil {
		return err
	}
	if err := r.write(out); err != nil {
		return err
	}
	if failures := r.failures(); failures != nil {
		return fmt.Errorf("%d of the peers failed", len(failures))
	}
	return nil
}

// write prints the run and writes it to the files.
func (r *result) write(out outputs) error {
	if out.update {
		old, err := readRun(out.json)
		if err != nil {
			return err
		}
		r.keep(old)
	}
	if err := r.printPlain(os.Stdout); err != nil {
		return err
	}
	if out.json != "" {
		text, err := r.encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(out.json, text, 0o666); err != nil {
			return err
		}
	}
	if out.document == "" {
		return nil
	}
	text, err := os.ReadFile(out.document)
	if err != nil {
		return err
	}
	filled, err := fillDocument(string(text), r)
	if err != nil {
		return fmt.Errorf("%s: %w", out.document, err)
	}
	return os.WriteFile(out.document, []byte(filled), 0o666)
}

// progress shows one line at a time, if somebody sits there to see it.
func progress(line string) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s", line)
	}
}
