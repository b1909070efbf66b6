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

// renewing does renewals, one transaction after the other. They need no latches, so
// nothing that happens to other commands holds them up.
func (e *Engine) renewing() {
	defer e.running.Done()
	for {
		jobs := e.renewals.take()
		if jobs == nil {
			return
		}
		e.renewals.finish(jobs, e.persist(jobs))
	}
}

// renewAll is whole for renewals. The rows of the sessions are locked first: from
// then on nobody changes anything of them, and whoever has read them before and
// wants to must begin anew.
func (tx *transaction) renewAll(ctx context.Context, jobs []*job) (committing bool, err error) {
	d := tx.e.dialect
	tx.forget()
	c := tx.view
	tx.known = tx.e.local.some(tx.scope.sessions)
	ids := slices.Sorted(maps.Keys(tx.scope.sessions))
	all := append(d.begin(tx.patience), d.sessions(ids, true, c.keepSession))
	if err := tx.send(ctx, append(all, d.clock(&c.reading, false)...)...); err != nil {
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
		s := c.sessions[ref.Session] // whoever has taken it over may have dropped what ended
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
	tx.missed(removed)
	return tx.write(ctx)
}

// readAskers reads who asks the claims that were found to yield, so that they can be
// told by whom.
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

// loadAlone makes a table of sessions alone: nothing may be settled in it.
func (tx *transaction) loadAlone() error {
	c := tx.view
	c.heed()
	var change uint64
	for ref, found := range c.claims { // order does not matter
		tx.now = max(tx.now, found.Changed)
		change = max(change, found.Change)
		if s := c.sessions[ref.Session]; s == nil || s.Closed {
			delete(c.claims, ref)
		}
	}
	snap := table.Snapshot{Counters: table.Counters{Now: tx.now, Changes: change}}
	for _, s := range c.sessions { // order does not matter: sessions are known by their ids
		if !s.Closed && s.Deadline > tx.now {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(c.claims), compareRefs) {
		if s := c.sessions[ref.Session]; s.Deadline > tx.now {
			snap.Claims = append(snap.Claims, c.claims[ref].ClaimRecord)
		}
	}
	tx.table = table.New()
	if err := tx.table.Load(snap); err != nil {
		return err
	}
	tx.table.Track()
	return nil
}

// renew renews a session of which only its own claims are known.
func (tx *transaction) renew(k lockkeeper.Key) (table.Reply, error) {
	reply, err := tx.step(table.Command{Op: table.Renew, Key: k, Alone: true})
	if errors.Is(err, lockkeeper.ErrSession) {
		tx.after = append(tx.after, func() { tx.e.local.detach(k.Session, k.Epoch) })
	}
	if s := tx.view.sessions[k.Session]; err == nil {
		// The database's clock may have been set back, and may be set right again: then
		// the session's end is near, however far it seems now.
		reply.Lease.TTL = min(reply.Lease.TTL, s.TTL)
		told := reply.Lease.Claims
		tx.after = append(tx.after, func() {
			for i := range told {
				tx.e.local.note(&told[i])
			}
		})
	}
	return reply, err
}

// slowLook is how long a claim waits at the most until this process looks whether it
// can go, whoever should have told it; lookLate is how much later than the moment at
// which something falls due.
const (
	slowLook  = 2 * time.Second
	lookLate  = time.Millisecond
	mostLooks = 64

	mostLooked = 200 // of a session's claims, to see with a renewal whether they are still there
)
