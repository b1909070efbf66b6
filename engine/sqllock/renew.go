package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// renewing runs renewals, one transaction after the other. They need no latches, so other calls do
// not delay them.
func (e *Engine) renewing() {
	defer e.running.Done()
	for {
		jobs := e.renewals.take()
		if jobs == nil {
			return
		}
		e.renewals.finish(jobs, e.runJobs(jobs))
	}
}

// renewAll does for renewals what run does for other calls. It locks the rows of the sessions
// first: a transaction that has read them before and writes to them begins again.
func (tx *transaction) renewAll(ctx context.Context, jobs []*job) (committing bool, err error) {
	d := tx.e.dialect
	tx.reset()
	c := tx.view
	tx.known = tx.e.local.sample(tx.scope.sessions)
	ids := slices.Sorted(maps.Keys(tx.scope.sessions))
	all := append(d.begin(tx.patience), d.sessions(ids, true, c.keepSession))
	if err := tx.send(ctx, append(all, d.clock(&c.reading, 0)...)...); err != nil {
		return false, err
	}
	tx.now = c.reading.now
	find := &search{now: tx.now, renewed: ids, refs: tx.known}
	keep := func(_ int, found *rows.Claim) { c.claims[found.Ref] = found }
	if err := tx.send(ctx, d.claims(find, keep)); err != nil {
		return false, err
	}
	if err := tx.readAskers(ctx, keep); err != nil {
		return false, err
	}
	removed := slices.DeleteFunc(tx.known, func(ref lockkeeper.Ref) bool {
		s := c.sessions[ref.Session] // the process that took it over may have dropped ended claims
		return c.claims[ref] != nil || s == nil || s.Closed || s.Epoch != tx.e.local.epoch(ref.Session)
	})
	if err := tx.loadAlone(); err != nil {
		return false, err
	}
	for _, j := range jobs {
		j.do(tx)
	}
	if tx.broken != nil {
		return false, tx.broken
	}
	tx.after = append(tx.after, func() { tx.e.local.sampled(tx.scope.sessions, tx.known) })
	tx.reportRemoved(removed)
	return tx.write(ctx)
}

// readAskers reads the claims that ask the claims found to yield, so that their status can name
// them.
func (tx *transaction) readAskers(ctx context.Context, keep func(int, *rows.Claim)) error {
	refs, sessions := make(map[lockkeeper.Ref]bool), make(map[string]bool)
	for _, found := range tx.view.claims { // order does not matter: sorted below
		for _, ask := range found.Asks {
			if tx.view.claims[ask.By] == nil {
				refs[ask.By] = true
			}
			if tx.view.sessions[ask.By.Session] == nil {
				sessions[ask.By.Session] = true
			}
		}
	}
	if len(refs) == 0 {
		return nil
	}
	d := tx.e.dialect
	return tx.send(ctx, d.claims(&search{refs: sortedRefs(refs)}, keep),
		d.sessions(slices.Sorted(maps.Keys(sessions)), false, tx.view.keepSession))
}

// loadAlone makes a table of the claims that were read, and of their sessions: it must not grant or end
// anything. Claims whose sessions have ended are in it, too: what they ask of others stands until a call
// ends them by the rules.
func (tx *transaction) loadAlone() error {
	c := tx.view
	c.applyAcks()
	snap := table.Snapshot{}
	ended := make(map[string]bool)
	for _, ref := range slices.SortedFunc(maps.Keys(c.claims), compareRefs) {
		found := c.claims[ref]
		tx.now = max(tx.now, found.Changed)
		snap.Counters.Changes = max(snap.Counters.Changes, found.Change)
		snap.Claims = append(snap.Claims, found.ClaimRecord)
		if s := c.sessions[ref.Session]; s == nil || s.Closed {
			ended[ref.Session] = true
		}
	}
	snap.Counters.Now = tx.now
	for _, s := range c.sessions { // order does not matter: sessions are known by their ids
		if !s.Closed {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for id := range ended { // order does not matter, likewise
		snap.Sessions = append(snap.Sessions, tx.endingSession(id, c.sessions[id]))
	}
	tx.table = table.New()
	if err := tx.table.Load(snap); err != nil {
		return err
	}
	tx.table.Track()
	return nil
}

// renew renews a session of which only its own claims were read.
func (tx *transaction) renew(k lockkeeper.Key) (table.Reply, error) {
	reply, err := tx.renewAlone(k)
	if errors.Is(err, lockkeeper.ErrSession) {
		tx.after = append(tx.after, func() { tx.e.local.detach(k.Session, k.Epoch) })
	}
	if s := tx.view.sessions[k.Session]; err == nil {
		// If the database's clock was set back, and is set right again, the session's end is near,
		// however far it seems now.
		reply.Lease.TTL = min(reply.Lease.TTL, s.TTL)
		claims := reply.Lease.Claims
		tx.after = append(tx.after, func() {
			for i := range claims {
				tx.e.local.note(&claims[i])
			}
		})
	}
	return reply, err
}

// renewAlone renews a session in a table that ends no sessions: it refuses one that has ended.
func (tx *transaction) renewAlone(k lockkeeper.Key) (table.Reply, error) {
	if s := tx.view.sessions[k.Session]; s == nil || s.Closed || s.Deadline <= tx.now {
		return table.Reply{}, &lockkeeper.Error{
			Err:    lockkeeper.ErrSession,
			Detail: "session " + k.Session + " has ended or was never attached",
		}
	}
	return tx.step(table.Command{Op: table.Renew, Key: k, Alone: true})
}

// checkEvery is how long a claim waits at most until this process checks whether it can be granted,
// in case a wakeup was lost; checkLate is the delay of a check after the time at which something
// falls due.
const (
	checkEvery = 2 * time.Second
	checkLate  = time.Millisecond
	mostChecks = 64

	mostSampled   = 200    // claims of a session whose rows a renewal looks for
	mostSuspected = 10_000 // the same, after a renewal that has found that some are missing
)
