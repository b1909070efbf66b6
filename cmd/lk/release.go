package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

func (a *app) newRelease() *cobra.Command {
	o := newReservationOptions()
	cleanup := ""
	cmd := &cobra.Command{
		Use:   "release PATH... --as NAME",
		Short: "Release a reservation",
		Long: `Release a reservation of lk grab, a hold or a position in line. If the name has none, lk says
so and exits 0. Reservations of other names are not touched.

--cleanup runs a shell command before the release, once, while lk keeps the lock; not if the
name does not hold it. If the lock is lost meanwhile, the command is stopped.` + reservationHelp + `

Exit codes:
  0    released, or there was nothing to release
  1    not released: the name has one of these paths by a reservation of other paths
  76   the lock was lost, and the clean-up was stopped before that
  2    bad usage; 69 the engine can't be reached; 77 denied
  else the clean-up's own; the lock is released all the same`,
		Example: `  # in the last step, in any case
  lk release db --as "run-$GITHUB_RUN_ID"

  # with a clean-up before the release
  lk release db --as "run-$GITHUB_RUN_ID" --cleanup 'dropdb test'`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			o.check(cmd, args, &a.bad)
			o.checkRanges(grab.Request{}, &a.bad)
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.release(cmd.Context(), &o, cleanup) }),
	}
	o.addName(cmd, a)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the number of released reservations as one JSON object")
	cmd.Flags().StringVar(&cleanup, "cleanup", "", "run `CMD` with sh -c before the release, while the lock is held")
	return cmd
}

// release is lk release.
func (a *app) release(ctx context.Context, o *reservationOptions, cleanup string) error {
	c, reservations, err := a.openReservations(ctx, o, trial{})
	if err != nil {
		return err
	}
	defer c.Close()
	release := func(ctx context.Context) (int, error) { return reservations.Release(ctx, o.name()) }
	var cleaned error
	if cleanup != "" {
		k, err := reservations.Keep(ctx, o.name(), o.terms(), lockkeeper.NewBootClock())
		switch {
		case err == nil:
			signals := make(chan os.Signal, 16)
			supervise.NotifySignals(signals)
			cleaned = a.cleanUp(c, kept{k, "release"}, o, cleanup, signals)
			signal.Stop(signals)
			release = k.Release
		case !errors.Is(err, lockkeeper.ErrLost):
			return spokenBy("release", err) // do not release without the clean-up
		default:
			a.note("%s; the clean-up was not run", spokenBy("release", err))
		}
	}
	released, err := release(ctx)
	if err != nil {
		return err
	}
	if o.asJSON {
		result := struct {
			As       string            `json:"as"`
			Paths    []lockkeeper.Path `json:"paths"`
			Released int               `json:"released"`
		}{o.as, o.paths, released}
		if err := writeJSON(a.stdout, result); err != nil {
			return errors.Join(err, cleaned)
		}
	}
	if released == 0 && cleaned == nil {
		return a.nothingReleased(ctx, c, o)
	}
	return cleaned
}

// nothingReleased says that the name has nothing at exactly these paths. It is an error if the name has a reservation
// of other paths, with one of these among them: the script that releases it believes that it is gone.
func (a *app) nothingReleased(ctx context.Context, c *connection, o *reservationOptions) error {
	for _, path := range o.paths {
		all, err := listAll(ctx, c.Client, lockkeeper.Query{Meets: path, Brief: true})
		if err != nil {
			break // this engine or identity can't list: then it is not known
		}
		for _, s := range all {
			has := slices.ContainsFunc(s.Grants, func(g lockkeeper.Grant) bool { return g.Path == path })
			if s.As != o.as || !has || !grab.IsGrabbed(s.Ref) {
				continue
			}
			var paths []string
			for _, g := range s.Grants {
				paths = append(paths, string(g.Path))
			}
			return &exit{code: exitFailure, say: fmt.Errorf("nothing was released: %s has a reservation of other paths with %s "+
				"among them; to release it: lk release %s --as %s", o.as, path, strings.Join(paths, " "), o.as)}
		}
	}
	if !a.quiet {
		a.note("%s has nothing at %s, so there is nothing to release%s", o.as, o.what(), reservedBy(ctx, c, o.as))
	}
	return nil
}

// cleanUp runs the clean-up under a hold that lk renews meanwhile, with a guard: the engine knows
// no process of a reservation, so if lk stands still or is killed, only the guard ends the clean-up
// with the hold. cleanUp does not run it for a waiting claim. Only the main goroutine may call it.
func (a *app) cleanUp(c *connection, k kept, o *reservationOptions, cleanup string, signals chan os.Signal) error {
	answer := k.Answer()
	if err := k.Err(); err != nil {
		return &exit{code: exitLost, say: fmt.Errorf("%w; the clean-up was not run", err)}
	}
	if answer.State != lockkeeper.Held {
		a.note("%s only waits for %s: the clean-up was not run", o.as, o.what())
		return nil
	}
	how := supervise.Options{
		Lease:  k,
		Grace:  min(5*time.Second, o.ttl/3),
		OnLost: supervise.Terminate,
		What:   o.what(),
		Note:   a.noteText,
	}
	if !a.quiet {
		how.Stderr = os.Stderr
	}
	s, err := supervise.Start(how, []string{"sh", "-c", cleanup}, heldEnvironment(answer, o, c.url))
	if err != nil {
		return err
	}
	end, err := s.Wait(signals)
	code := end.Code
	switch {
	case err != nil:
		return &exit{code: exitLost, say: err}
	case code != 0:
		return &exit{code: code, say: fmt.Errorf("the clean-up failed with exit code %d", code)}
	}
	return nil
}

// kept adapts the hold of a name to supervise.Lease; verb is the verb of lk, for errors.
type kept struct {
	*grab.Keepalive
	verb string
}

// Err is the error of the Keepalive, in the name of the verb.
func (k kept) Err() error { return spokenBy(k.verb, k.Keepalive.Err()) }

// spokenBy replaces the operation in an error of the package lockkeeper by a verb of lk.
func spokenBy(verb string, err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Op = verb
	return &named
}

// YieldAsked returns nil: a request to yield does not stop a clean-up before the end of its lease.
func (k kept) YieldAsked() <-chan struct{} { return nil }

// RenewError returns nil: the error of the loss has the reason.
func (k kept) RenewError() error { return nil }

// Asked returns the claim that asks for the hold, if any.
func (k kept) Asked() *lockkeeper.Asked { return k.Answer().Asked }
