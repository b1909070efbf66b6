package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// farewell is the data by which a guard leaves the session of a killed lk. It may contain
// passwords, and contains the session's id, which is the right to act for the session. So
// it goes through a pipe, and never into arguments, an environment or a file. Text that
// may not be UTF-8 is bytes, which JSON preserves.
type farewell struct {
	URL         []byte   // of the engine
	Environment [][]byte // NAME=VALUE of variables that engines read
	Session     string
}

// environmentOf selects the variables that an engine needs in addition to its URL: those of
// Lockkeeper, of Postgres, of certificates, and of the home directory.
func environmentOf(all []string) [][]byte {
	var chosen [][]byte
	for _, variable := range all {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LOCKKEEPER_") || strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "SSL_CERT_") ||
			slices.Contains([]string{"HOME", "USER", "LOGNAME"}, name) {
			chosen = append(chosen, []byte(variable))
		}
	}
	return chosen
}

// farewell lets a guard leave the session of this hold when lk and its command are dead. It is nil
// if the kernel notifies the engine of dead processes.
func (c *connection) farewell(hold *lockkeeper.Hold, ttl time.Duration) *supervise.Farewell {
	session := hold.Ref().Session
	if c.engine.Guarantees().Reach != lockkeeper.OnNetwork || c.sessionFile(session) != nil {
		return nil
	}
	order, err := json.Marshal(farewell{
		URL:         []byte(c.url),
		Environment: environmentOf(os.Environ()),
		Session:     session,
	})
	if err != nil {
		return nil // impossible
	}
	return &supervise.Farewell{
		Order:   order,
		TTL:     ttl,
		Epoch:   c.attached.epoch.Load,
		Changed: c.attached.changed,
	}
}

// leave leaves a session under that epoch, by the order that farewell wrote. Nobody could act on
// an error.
func leave(ctx context.Context, order []byte, epoch uint64) {
	var f farewell
	if json.Unmarshal(order, &f) != nil {
		return
	}
	for _, variable := range f.Environment {
		name, value, _ := strings.Cut(string(variable), "=")
		_ = os.Setenv(name, value) // other processes see only the environment that a process starts with
	}
	e, err := lockkeeper.Open(ctx, lookingURL(string(f.URL)))
	if err != nil {
		return
	}
	_ = e.End(ctx, lockkeeper.Key{Session: f.Session, Epoch: epoch}, lockkeeper.Ending{Kind: lockkeeper.Leave})
	_ = e.Close()
}

// newGuardVerb is the guard's own side. Nobody but lk run calls it.
func (a *app) newGuardVerb() *cobra.Command {
	return &cobra.Command{
		Use:    supervise.Verb,
		Short:  "The second process of lk run, which starts it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: verb(func(_ *cobra.Command, args []string) error {
			if err := supervise.Guard(args[0], a.stderr, leave); err != nil {
				return &exit{code: exitUsage, say: err}
			}
			return nil
		}),
	}
}

// attachments is an engine for one session. It records the epoch of the latest Attach and whether
// the session was left, and reports that the engine is draining.
type attachments struct {
	lockkeeper.Engine
	epoch   atomic.Uint64
	left    atomic.Bool                 // the session has ended: a Leave was answered
	changed chan struct{}               // gets a value after a change of epoch
	drains  atomic.Pointer[func(error)] // called when a draining engine refuses a claim; may be nil
}

func noteAttachments(e lockkeeper.Engine) *attachments {
	return &attachments{Engine: e, changed: make(chan struct{}, 1)}
}

// Outage implements lockkeeper.OutageReporter.
func (a *attachments) Outage() error { return lockkeeper.OutageOf(a.Engine) }

// Attach implements lockkeeper.Engine.
func (a *attachments) Attach(
	ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status),
) (lockkeeper.Lease, error) {
	lease, err := a.Engine.Attach(ctx, s, notify)
	if err == nil {
		a.epoch.Store(lease.Key.Epoch)
		select {
		case a.changed <- struct{}{}:
		default: // a wakeup is pending
		}
	}
	return lease, err
}

// End implements lockkeeper.Engine.
func (a *attachments) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	err := a.Engine.End(ctx, k, e)
	if e.Kind == lockkeeper.Leave && (err == nil || errors.Is(err, lockkeeper.ErrSession)) {
		a.left.Store(true)
	}
	return err
}

// Claim implements lockkeeper.Engine.
func (a *attachments) Claim(
	ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
) (lockkeeper.Status, error) {
	status, err := a.Engine.Claim(ctx, k, w)
	if drains := a.drains.Load(); err != nil && drains != nil && errors.Is(err, lockkeeper.Draining) {
		(*drains)(err)
	}
	return status, err
}
