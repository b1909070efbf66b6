package sqllock

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// A transaction draws one block of numbers, or as many as it turns out to need, such as for the end of a freeze for
// which thousands wait. They have to follow each other.
const (
	numbersAtOnce = 1024 // in a block
	mostBlocks    = 256
	mostDraws     = 10 // tries to draw blocks that follow each other
)

// changes is what a transaction writes.
type changes struct {
	held        []session // sessions to lock: they, or claims of them, are written
	new         []session
	changed     []session               // sessions of held whose rows differ in more than acknowledgements
	claims      []*rows.Claim           // in the order of their changes
	over        map[lockkeeper.Ref]bool // claims that need no row
	gone, added []targetRow
	thawed      []lockkeeper.Path
	frozen      []table.FreezeRecord
	holdTimes   []table.HoldTimeRecord
}

func (out *changes) empty() bool {
	return len(out.new)+len(out.held)+len(out.claims)+len(out.thawed)+len(out.frozen)+len(out.holdTimes) == 0
}

// changes sorts the changes of the table.
func (tx *transaction) changes() *changes {
	snap := tx.table.Changes()
	out := &changes{over: make(map[lockkeeper.Ref]bool)}
	sessions := make(map[string]session)
	for _, record := range snap.Sessions {
		tx.changeSession(sessions, record)
	}
	out.claims = make([]*rows.Claim, 0, len(snap.Claims))
	for i := range snap.Claims {
		ref := snap.Claims[i].Ref
		if i+1 < len(snap.Claims) && snap.Claims[i+1].Ref == ref {
			continue // only its last change counts
		}
		c := &rows.Claim{ClaimRecord: snap.Claims[i]}
		if st, ended := tx.ended[ref]; ended {
			c.Blockers, c.Position, c.ETA = st.Blockers, st.Position, st.ETA
		}
		out.claims = append(out.claims, c)
		if tx.needsNoRow(c) {
			out.over[ref] = true
		}
		if _, known := sessions[ref.Session]; !known {
			if s := tx.view.sessions[ref.Session]; s != nil {
				sessions[ref.Session] = *s // only its version moves
			}
		}
	}
	out.changeTargets(tx.view.claims)
	out.dropTargets(tx)
	for _, id := range slices.Sorted(maps.Keys(sessions)) {
		s := sessions[id]
		if at := tx.attached[id]; at.attempt != "" && !s.Closed {
			s.process, s.attempt = at.process, at.attempt
		}
		if old := tx.view.sessions[id]; old != nil {
			out.held = append(out.held, s)
			if !old.onlyAcksDiffer(s) {
				out.changed = append(out.changed, s)
			}
		} else if !s.Closed {
			out.new = append(out.new, s)
		}
	}
	for _, f := range snap.Freezes {
		if f.Ended {
			out.thawed = append(out.thawed, f.Path)
		} else {
			out.frozen = append(out.frozen, f)
		}
	}
	for _, p := range snap.HoldTimes {
		if _, latched := tx.scope.paths[p.Path]; !latched && !tx.scope.all {
			continue // another transaction may be writing it
		}
		tx.holdTimes = append(tx.holdTimes, p)
		if tx.e.holdTimes.moved(&p) {
			out.holdTimes = append(out.holdTimes, p)
		}
	}
	tx.after = append(tx.after, func() { tx.e.holdTimes.update(tx.holdTimes, out.holdTimes) })
	return out
}

// onlyAcksDiffer reports whether s differs from old in its acknowledgements at most.
func (old session) onlyAcksDiffer(s session) bool {
	old.Acked, old.LowestOpen = s.Acked, s.LowestOpen
	return old == s
}

// needsNoRow reports whether c has ended and nobody will ask for its reason.
func (tx *transaction) needsNoRow(c *rows.Claim) bool {
	if c.ClaimRecord.State != lockkeeper.Ended || !c.Acked || c.Thawed || c.Forget > tx.now || c.UnackedUntil > 0 ||
		tx.view.reading.watched {
		return false
	}
	s := tx.view.sessions[c.Ref.Session]
	return s != nil && !tx.wakeups[wakeup{s.process, c.Ref}]
}

// changeSession records a change of a session. If a session ended and began again, the changes come
// in this order.
func (tx *transaction) changeSession(sessions map[string]session, record table.SessionRecord) {
	s := session{SessionRecord: record}
	if old := tx.view.sessions[record.ID]; old != nil {
		s = *old
		if !record.Closed {
			s.SessionRecord = record
		} else if !old.Closed {
			s.Closed, s.Deadline = true, tx.now
		}
	}
	if record.Closed {
		tx.closed[record.ID] = true
	}
	sessions[record.ID] = s
}

// changeTargets finds the rows of targets to remove and to add.
func (out *changes) changeTargets(were map[lockkeeper.Ref]*rows.Claim) {
	for i := range out.claims {
		now := targetRows(out.claims[i])
		var old []targetRow
		if c := were[out.claims[i].Ref]; c != nil {
			old = targetRows(c)
		}
		for _, row := range old {
			if !slices.Contains(now, row) {
				out.gone = append(out.gone, row)
			}
		}
		for _, row := range now {
			if !slices.Contains(old, row) {
				out.added = append(out.added, row)
			}
		}
	}
	inOrder := func(a, b targetRow) int { return cmp.Or(cmp.Compare(a.path, b.path), a.order.compare(b.order)) }
	slices.SortFunc(out.gone, inOrder)
	slices.SortFunc(out.added, inOrder)
}

// dropTargets finds the rows of targets of dropped claims.
func (out *changes) dropTargets(tx *transaction) {
	for ref, c := range tx.view.claims { // order does not matter: rows are only removed
		if c.ClaimRecord.State == lockkeeper.Ended && slices.Contains(tx.dropped, ref.Session) {
			out.gone = append(out.gone, targetRows(c)...)
		}
	}
}

// targetRows returns the rows of targets that c has.
func targetRows(c *rows.Claim) []targetRow {
	o := orderOf(c)
	if o.class < 0 {
		return nil
	}
	var all []targetRow
	if o.class == classHeld || o.class == classUnacked {
		for _, g := range c.Grants {
			all = append(all, targetRow{g.Path, g.Mode, o})
		}
		return all
	}
	for _, t := range c.Want.Targets {
		all = append(all, targetRow{t.Path, t.Mode, o})
	}
	return all
}

// write writes the changes, and commits. committing: the commit was sent.
func (tx *transaction) write(ctx context.Context) (committing bool, err error) {
	out, d := tx.changes(), tx.e.dialect
	if out.empty() {
		return false, tx.send(ctx, d.rollback())
	}
	var all []statement
	if len(out.held) > 0 {
		all = d.hold(out.held)
	}
	for _, id := range tx.dropped {
		all = append(all, d.dropEnded(id, tx.view.reading.watched))
	}
	all = append(all, d.putSessions(out.new, out.changed)...)
	claims, err := tx.putClaims(out)
	if err != nil {
		return false, err
	}
	all = append(append(all, claims...), d.putTargets(out.gone, out.added)...)
	all = append(all, d.putFreezes(out.thawed, out.frozen)...)
	if len(out.holdTimes) > 0 {
		all = append(all, d.putHoldTimes(out.holdTimes)...)
	}
	all = append(all, tx.wakeupStatements()...)
	return true, tx.send(ctx, append(all, d.commit())...)
}

// putClaims writes the rows of new and changed claims, and removes the rows of others.
func (tx *transaction) putClaims(out *changes) ([]statement, error) {
	var new, changed []*rows.Claim
	var gone []lockkeeper.Ref
	for _, c := range out.claims {
		switch row := tx.view.claims[c.Ref]; {
		case out.over[c.Ref] && row != nil:
			gone = append(gone, c.Ref)
		case out.over[c.Ref]: // it began and ended in this transaction
		case row == nil && c.ClaimRecord.State != lockkeeper.Ended:
			new = append(new, c)
		default: // the row of an ended freeze may exist
			changed = append(changed, c)
		}
	}
	tx.e.local.removing(gone)
	return tx.e.dialect.putClaims(new, changed, gone)
}

// wakeupStatements send wakeups to other processes.
func (tx *transaction) wakeupStatements() []statement {
	if len(tx.wakeups) == 0 {
		return nil
	}
	wakeups := slices.SortedFunc(maps.Keys(tx.wakeups), func(a, b wakeup) int {
		return cmp.Or(cmp.Compare(a.process, b.process), compareRefs(a.ref, b.ref))
	})
	return tx.e.dialect.sendWakeups(wakeups, tx.now)
}
