package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// keepOptions are the flags of lk keep.
type keepOptions struct {
	reservationOptions
	pid     int
	cleanup string
}

func (a *app) newKeep() *cobra.Command {
	o := &keepOptions{reservationOptions: newReservationOptions()}
	cmd := &cobra.Command{
		Use:   "keep PATH... --as NAME",
		Short: "Renew a reservation until a process ends, then release it",
		Long: `Renew a reservation of lk grab until a process has ended: the parent of lk keep, or the process
of --pid. Then run the --cleanup command, once, if the name holds the lock, and release.
Start lk keep in the background. When it has begun, it prints the reservation as lk grab
does.

It also ends when the lock is lost, with the reason (exit code 76), or when lk release
released it (exit code 0, without clean-up). If the engine can't be reached, it keeps trying
until the lock has ended.

A signal (Ctrl-C, kill) only ends lk keep: nothing is released and no clean-up is run, since
the job may go on. Then, as after kill -9, the lock ends with its TTL, unless lk renew or
another lk keep continues. To release it use lk release. SIGHUP, the end of the terminal,
is ignored.` + reservationHelp + `

Exit codes:
  0    the process ended and the lock is released, or somebody released it before
  76   the lock was lost
  2    bad usage, or no such process; 69 the engine can't be reached; 77 denied
  128+n  signal n ended the keeping
  else the clean-up's own; the lock is released all the same`,
		Example: `  # in a script after lk grab: keep the lock until the script ends, however that happens
  lk keep db --as "run-$ID" --cleanup 'dropdb test' &

  # in a CI step: keep it for the steps after this one. $PPID is what runs the steps
  lk keep db --as "run-$GITHUB_RUN_ID" --pid $PPID >keep.log 2>&1 &`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			o.check(cmd, args, &a.bad)
			o.checkRanges(grab.Request{}, &a.bad)
			if cmd.Flags().Changed("pid") && o.pid < 1 {
				a.bad.addf("--pid %d is no process: name one by its number, such as --pid $PPID", o.pid)
			}
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.keep(cmd.Context(), o) }),
	}
	o.addName(cmd, a)
	o.addTTL(cmd, &a.bad)
	cmd.Flags().Var(number{&o.pid, &a.bad, "--pid takes the number of a process, such as $PPID, not %q"}, "pid",
		"keep until this process ends (default: the parent of lk)")
	cmd.Flags().StringVar(&o.cleanup, "cleanup", "",
		"run `CMD` with sh -c before the release, while the lock is held")
	return cmd
}

// watched returns a channel that is closed when the process that o follows ends.
func (o *keepOptions) watched() (<-chan struct{}, error) {
	const name = "name the process to follow, as in --pid $PPID"
	if o.pid > 0 {
		ended, err := supervise.WatchProcess(o.pid)
		if err != nil {
			return nil, &exit{code: exitUsage, say: fmt.Errorf("process %d can't be followed: %w; nothing is kept, and "+
				"nothing was released", o.pid, err)}
		}
		return ended, nil
	}
	parent := os.Getppid()
	if parent <= 1 {
		return nil, &exit{code: exitUsage, say: errors.New("the process that started this one has ended already, or is " +
			"process 1: " + name)}
	}
	ended, err := supervise.WatchProcess(parent)
	if err == nil && os.Getppid() != parent {
		err = supervise.ErrNoProcess // its number may be another's by now
	}
	if err != nil {
		return nil, &exit{code: exitUsage, say: fmt.Errorf("the process that started this one, %d, can't be followed: %w: %s",
			parent, err, name)}
	}
	return ended, nil
}

// keep is lk keep.
func (a *app) keep(ctx context.Context, o *keepOptions) error {
	signals := make(chan os.Signal, 16)
	supervise.NotifySignals(signals)
	supervise.SurviveBrokenPipes()
	defer signal.Stop(signals)
	ended, err := o.watched()
	if err != nil {
		return err
	}
	starting, started := stoppedBy(ctx, signals, supervise.EndsKeeping)
	c, k, err := a.startKeeping(starting, o)
	if c != nil {
		defer c.Close()
	}
	if k != nil {
		defer k.Stop()
	}
	if stopped := started(); stopped != nil {
		return stopped
	}
	if err != nil {
		return err
	}
	// Scripts wait for this line. An error is no reason to stop.
	fmt.Fprintln(a.stdout, answerLine(k.Answer()))
	asked := false
	for {
		select {
		case s := <-signals:
			if supervise.EndsKeeping(s) {
				return interrupted(s)
			}
		case <-k.Done():
			return a.noLongerKept(k.Why(ctx))
		case <-k.Changes():
			if by := k.Answer().Asked; by != nil && !asked {
				asked = true
				a.note("%s: %s", o.what(), by)
			}
		case <-ended:
			return a.endKeeping(ctx, c, k, o, signals)
		}
	}
}

// startKeeping opens the engine and renews the hold of the name. Close the connection even if there
// is an error.
func (a *app) startKeeping(ctx context.Context, o *keepOptions) (*connection, *grab.Keepalive, error) {
	c, reservations, err := a.openReservations(ctx, &o.reservationOptions, trial{})
	if err != nil {
		return nil, nil, err
	}
	k, err := reservations.Keep(ctx, o.name(), o.terms(), lockkeeper.NewBootClock())
	return c, k, err
}

// noLongerKept returns the error of lk keep after the loss of the hold.
func (a *app) noLongerKept(err error) error {
	for _, own := range []lockkeeper.Reason{lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Cancelled} {
		if errors.Is(err, own) {
			return nil
		}
	}
	return err
}

// endKeeping cleans up and releases.
func (a *app) endKeeping(ctx context.Context, c *connection, k *grab.Keepalive, o *keepOptions,
	signals chan os.Signal) error {
	var cleaned error
	if o.cleanup != "" {
		supervise.OutliveTerminal() // the end of the terminal may be why the job ended
		cleaned = a.cleanUp(c, kept{k, "keep"}, &o.reservationOptions, o.cleanup, signals)
	}
	if k.Err() != nil && cleaned == nil {
		return a.noLongerKept(k.Why(ctx))
	}
	if _, err := k.Release(ctx); err != nil {
		longest := max(o.ttl, k.Answer().TTL) // an earlier command may have promised more
		a.note("%s is not released, and is free %s", o.what(), freeAfter(duration.Remaining(longest), c.leaderless(err)))
		return errors.Join(err, cleaned)
	}
	return cleaned
}

// heldEnvironment returns the environment of a clean-up, as that of a command of lk run.
func heldEnvironment(answer grab.Answer, o *reservationOptions, url string) []string {
	slot := 0
	if i := slices.IndexFunc(answer.Grants, isPermits); i >= 0 {
		slot = answer.Grants[i].Slot
	}
	paths := make([]string, len(o.paths))
	for i, p := range o.paths {
		paths[i] = string(p)
	}
	return environment(strings.Join(paths, "\n"), answer.Fence, answer.Ref, slot, url)
}

func isPermits(g lockkeeper.Grant) bool { return g.Mode == lockkeeper.ModePermits }
