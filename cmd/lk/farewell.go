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

// farewell is what a guard must know to leave the session of an lk that was killed. It
// may contain passwords, and the session's id, which is the right to act for it: it goes
// through a pipe, and never into arguments, an environment or a file. What may not be
// UTF-8 is bytes, which JSON keeps as they are.
type farewell struct {
	LK          int      // its process
	URL         []byte   // of the engine
	Environment [][]byte // NAME=VALUE of what engines read
	Session     string
	TTL         time.Duration
}

// environmentOf are the variables by which an engine is reached, beside its URL: ours,
// those of Postgres, certificates, and by which the home directory is found.
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

// farewell has a guard leave the session of this hold once lk and its command are dead,
// where only that or the TTL ends it: elsewhere the kernel tells the engine.
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
		return nil // can't be
	}
	return order
}

// attachments is an engine for one session, which notes the epoch of its latest Attach, and
// that the engine takes no new claims.
type attachments struct {
	lockkeeper.Engine
	epoch   atomic.Uint64
	changed chan struct{}               // filled after epoch has changed
	drains  atomic.Pointer[func(error)] // called when a claim was refused for that; nil: nobody
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
		default: // it is filled already
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
