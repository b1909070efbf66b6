package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

func (a *app) newRenew() *cobra.Command {
	o := newReservationOptions()
	cmd := &cobra.Command{
		Use:   "renew PATH... --as NAME",
		Short: "Renew a reservation, without queueing again",
		Long: `Renew a reservation of lk grab for another TTL, and print it as lk grab does. It never queues
again: if there is nothing to renew, the lock is lost, and lk prints why.` + reservationHelp + `

Exit codes:
  0    ok
  75   wait (-E names another code)
  76   lost: the name has no reservation any more
  2    bad usage; 69 the engine can't be reached; 77 denied`,
		Example: `  # in a later step: still mine?
  lk renew db --as "run-$GITHUB_RUN_ID" || exit

  # two more days
  lk renew deploy --as release-freeze --for 2d`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			o.check(cmd, args, &a.bad)
			o.checkRanges(grab.Request{}, &a.bad)
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			c, reservations, err := a.openReservations(cmd.Context(), &o, trial{})
			if err != nil {
				return err
			}
			defer c.Close()
			answer, err := reservations.Renew(cmd.Context(), o.name(), o.terms())
			if err != nil {
				return withReserved(cmd.Context(), c, o.as, err)
			}
			return a.answer(&o, answer)
		}),
	}
	o.addName(cmd, a)
	o.addTTL(cmd, &a.bad)
	o.addAnswer(cmd, &a.bad)
	return cmd
}

// withReserved adds to the error of a renewal what the name has elsewhere, if it has nothing here and no reason is
// known.
func withReserved(ctx context.Context, c *connection, as string, err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost || e.Reason != lockkeeper.NoReason {
		return err
	}
	more := *e
	more.Detail += reservedBy(ctx, c, as)
	return &more
}
