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

	"github.com/lockkeeper/lockkeeper"
)

// farewell is the data by which a guard leaves the session of a killed lk. It may contain
// passwords, and contains the session's id, which is the right to act for the session. So
// it goes through a pipe, and never into arguments, an environment or a file. Text that
// may not be UTF-8 is bytes, which JSON preserves.
type farewell struct {
	LK          int      // process number
	URL         []byte   // of the engine
	Environment [][]byte // NAME=VALUE of variables that engines read
	Session     string
	TTL         time.Duration
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

// farewell returns the order for a guard to leave the session of this hold when lk and its
// command are dead. It is nil if the kernel notifies the engine of dead processes.
func (c *connection) farewell(hold *lockkeeper.Hold, ttl time.Duration) []byte {
	session := hold.Ref().Session
	if c.engine.Guarantees().Reach != lockkeeper.OnNetwork || c.sessionFile(session) != nil {
		return nil
	}
	order, err := json.Marshal(farewell{
		LK:          os.Getpid(),
		URL:         []byte(c.url),
		Environment: environmentOf(os.Environ()),
		Session:     session,
		TTL:         ttl,
	})
	if err != nil {
		return nil // impossible
	}
	return order
}

// attachments is an engine for one session. It records the epoch of the latest Attach, and
// reports that the engine is draining.
type attachments struct {
	lockkeeper.Engine
	epoch   atomic.Uint64
	changed chan struct{}               // gets a value after a change of epoch
	drains  atomic.Pointer[func(error)] // called when a draining engine refuses a claim; may be nil
}

func noteAttachments(e lockkeeper.Engine) *attachments {
	return &attachments{Engine: e, changed: make(chan struct{}, 1)}
}

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
