package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// transaction is one transaction of the database. Under its latches it reads all
// that may bear on what it decides into a table of its own, applies the commands to
// that, and writes what changed; all of it or nothing.
//
// Latching and reading are statements of their own under READ COMMITTED, so what is
// read was committed before the latches were had, and nobody changes it before the
// commit. Of sessions, which are renewed without latches, that is made sure at the
// end: each has a version, and whoever writes anything of a session locks its row.
//
// Nothing that it finds out may be told before the commit.
type transaction struct {
	e        *Engine
	link     link
	scope    *scope
	regions  []region
	patience patience

	view    *view
	table   *table.Table
	now     time.Duration
	broken  error // why it must not be committed
	dropped []string

	attached  map[string]session // what Attach writes of sessions beside the table
	granted   []lockkeeper.Ref
	asked     bool             // somebody was asked to yield, or is not any more
	vain      bool             // somebody was asked, perhaps in vain
	begun     []lockkeeper.Ref // claims that were asked for
	known     []lockkeeper.Ref // claims that should be there
	news      news
	ended     map[lockkeeper.Ref]lockkeeper.Status // those in whose way somebody stood
	bells     map[bell]bool
	elsewhere []lockkeeper.Target // what ended where nobody has looked
	closed    map[string]bool
	paced     []table.HoldTimeRecord
	after     []func() // to be done when it is committed
}

var (
	errCut     = errors.New("the head of the line is not enough")
	errWider   = errors.New("what ended concerns more than was read")
	errNumbers = errors.New("more was granted at once than there are numbers")
)

func (tx *transaction) send(ctx context.Context, all ...statement) error {
	return tx.link.send(ctx, all)
}

// forget makes tx as if it had not read anything.
func (tx *transaction) forget() {
	tx.view = newView()
	tx.table, tx.broken, tx.dropped = nil, nil, nil
	tx.attached = make(map[string]session)
	tx.granted, tx.asked, tx.vain, tx.begun, tx.news, tx.paced, tx.after = nil, false, false, nil, news{}, nil, nil
	tx.ended = make(map[lockkeeper.Ref]lockkeeper.Status)
	tx.bells = make(map[bell]bool)
	tx.elsewhere, tx.closed = nil, make(map[string]bool)
}

// load makes the table of what was read.
func (tx *transaction) load() error {
	c := tx.view
	c.heed()
	tx.now = c.reading.now
	for _, found := range c.claims { // order does not matter
		tx.now = max(tx.now, found.Changed) // should the database's clock have been set back
	}
	var snap table.Snapshot
	n := c.reading.numbers
	snap.Counters = table.Counters{Now: tx.now, Fences: n, Tickets: n, Epochs: n, Changes: n}
	live := make(map[string]bool)
	snap.Claims = make([]table.ClaimRecord, 0, len(c.claims))
	for _, ref := range slices.SortedFunc(maps.Keys(c.claims), compareRefs) {
		found := c.claims[ref]
		snap.Counters.Changes = max(snap.Counters.Changes, found.Change)
		snap.Claims = append(snap.Claims, found.ClaimRecord)
		live[ref.Session] = live[ref.Session] || found.ClaimRecord.State != lockkeeper.Ended
	}
	for id, alive := range live { // order does not matter: sessions are known by their ids
		if s := c.sessions[id]; alive && (s == nil || s.Closed) {
			snap.Sessions = append(snap.Sessions, tx.remains(id, s))
		}
	}
	for _, s := range c.sessions { // order does not matter
		if !s.Closed {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for _, f := range c.freezes {
		if tx.concerned(f) {
			snap.Freezes = append(snap.Freezes, f)
		}
	}
	for _, p := range c.paces { // order does not matter
		snap.HoldTimes = append(snap.HoldTimes, p)
	}
	tx.table = table.New()
	if err := tx.table.Load(snap); err != nil {
		return err
	}
	tx.table.Track()
	return nil
}

// heed brings the claims that were read up to what their sessions have heard. That is
// written of sessions alone: not all of their claims are read each time (R12).
func (c *view) heed() {
	for ref, found := range c.claims { // order does not matter
		s := c.sessions[ref.Session]
		if s != nil && found.ClaimRecord.State != lockkeeper.Ended && found.StatedIn != 0 && found.StatedIn <= s.Acked {
			found.UnackedEnd = 0 // what was told
		}
	}
}

// remains is a session that has ended while claims of it were left, as an open one
// that ends now: so they end by the rules. If its row was removed by hand, nothing
// more is known of it.
func (tx *transaction) remains(id string, s *session) table.SessionRecord {
	if s == nil {
		return table.SessionRecord{ID: id, TTL: lockkeeper.MinTTL, Deadline: tx.now, Promise: tx.now, Resumed: true}
	}
	r := s.SessionRecord
	r.Closed, r.Resumed, r.Deadline = false, true, tx.now
	return r
}

// concerned reports whether a freeze has to be known: it bears on what was latched, or
// was made by a claim with others that do.
func (tx *transaction) concerned(f table.FreezeRecord) bool {
	return slices.ContainsFunc(tx.view.freezes, func(g table.FreezeRecord) bool {
		return f.By == g.By &&
			tx.meetsFreeze(g.Path)
	})
}

// meetsFreeze reports whether a freeze of that path bears on what was latched.
func (tx *transaction) meetsFreeze(path lockkeeper.Path) bool {
	for p := range tx.scope.paths {
		if p.Covers(path) || path.Covers(p) {
			return true
		}
	}
	return false
}

// step applies one command. Its answer may be given only after the commit.
func (tx *transaction) step(c table.Command) (table.Reply, error) {
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	c.At = tx.now
	reply, err := tx.table.Step(&c)
	reply.Status = tx.placed(reply.Status)
	tx.collect()
	return reply, err
}

// review ends what has fallen due and settles what was read: something may be
// missing by now that stood in the way.
func (tx *transaction) review() {
	_, _ = tx.step(table.Command{Op: table.Review}) // never refused
}

// collect prepares the news of a step.
func (tx *transaction) collect() {
	for _, ev := range tx.table.Events() {
		tx.news.any = true
		if ev.Path != "" {
			continue
		}
		st, ok := tx.table.Status(ev.Ref)
		if !ok {
			continue
		}
		st = tx.placed(st)
		if ev.Kind == table.AskChanged {
			tx.asked, tx.vain = true, tx.vain || tx.mayAskInVain()
		}
		if ev.Kind == table.Granted {
			tx.granted = append(tx.granted, ev.Ref)
		}
		if st.State == lockkeeper.Ended {
			if len(st.Blockers) > 0 {
				tx.ended[ev.Ref] = st
			}
			tx.leftElsewhere(&st)
		}
		tx.tell(&st)
	}
}

// tell prepares to tell the session of a claim, here or in another process.
func (tx *transaction) tell(st *lockkeeper.Status) {
	switch process := tx.processOf(st.Ref.Session); process {
	case tx.e.process:
		tx.news.add(*st)
	case "":
	default:
		tx.bells[bell{process, st.Ref}] = true
	}
}

// processOf is the process that attached a session last; "" if nobody is to be told. A session
// may have been attached here and then elsewhere, so its row counts.
func (tx *transaction) processOf(session string) string {
	if at := tx.attached[session]; at.attempt != "" {
		return at.process
	}
	if s := tx.view.sessions[session]; s != nil {
		return s.process
	}
	if _, here := tx.e.local.notify(session); here {
		return tx.e.process
	}
	return ""
}

// leftElsewhere notes where a hold ended and nobody has looked who waits there, or below: their
// quiet periods begin anew, and they may go.
func (tx *transaction) leftElsewhere(st *lockkeeper.Status) {
	for _, g := range st.Grants {
		if below, looked := tx.scope.paths[g.Path]; !looked || !below && g.Mode != lockkeeper.ModePermits {
			tx.elsewhere = append(tx.elsewhere, lockkeeper.Target{Path: g.Path, Mode: lockkeeper.ModeExclusive})
		}
	}
}

// sound makes sure that what was decided did not depend on those who were not read.
func (tx *transaction) sound() error {
	if tx.broken != nil {
		return tx.broken
	}
	if tx.scope.add(tx.elsewhere) {
		return errWider
	}
	n, first := tx.table.Counters(), tx.view.reading.numbers
	if n.Fences >= first+numbersAtOnce || n.Tickets >= first+numbersAtOnce || n.Epochs >= first+numbersAtOnce {
		return errNumbers
	}
	return tx.headsSuffice()
}

// barred reports whether among those up to the last that was read one waits for a path alone, so
// that nobody behind that can go. One that a freeze forbids is ahead of nobody (R18).
func (tx *transaction) barred(path lockkeeper.Path, last order) bool {
	for ref, c := range tx.view.claims { // order does not matter
		if waitsAlone(c.Want.Targets, path) && classOf(c) == classHard && orderOf(c).compare(last) <= 0 {
			if st, ok := tx.table.Explain(ref); ok && st.State == lockkeeper.Waiting &&
				!slices.Contains(st.Waits, lockkeeper.Frozen) {
				return true
			}
		}
	}
	return false
}

// deserted reports whether none of those waits any more who were read of a line.
func (tx *transaction) deserted(r region, last order) bool {
	for ref, c := range tx.view.claims { // order does not matter
		if orderOf(c).compare(last) <= 0 && slices.ContainsFunc(c.Want.Targets, func(t lockkeeper.Target) bool {
			return r.has(t.Path, t.Mode)
		}) {
			if st, ok := tx.table.Status(ref); ok && st.State == lockkeeper.Waiting {
				return false
			}
		}
	}
	return true
}

// headsSuffice makes sure that nobody was granted anything, or asks for it, who stands behind
// the part of a line that was read, and that nobody has begun to wait, and keeps back meanwhile
// what is held, without a look at all who may be waiting for that (R15).
func (tx *transaction) headsSuffice() error {
	if len(tx.view.cuts) == 0 {
		return nil
	}
	for _, ref := range tx.begun {
		st, _ := tx.table.Status(ref)
		if st.Converting || st.State == lockkeeper.Waiting && st.Inside != (lockkeeper.Ref{}) {
			return errCut
		}
	}
	cuts := tx.lines()
	for i, last := range tx.view.cuts { // order does not matter
		if tx.scope.line < tx.scope.head && !tx.barred(tx.regions[i].path, last) {
			return errCut // it is not one after the other that can go
		}
	}
	for _, ref := range tx.granted {
		if st, _ := tx.table.Status(ref); isBehind(cuts, tx.stood(ref), &st) {
			return errCut
		}
	}
	if tx.vain || tx.asked && tx.mayAskInVain() {
		return errCut
	}
	return nil
}

// mayAskInVain reports whether somebody asks who stands behind the part of a line that was read (R10).
func (tx *transaction) mayAskInVain() bool {
	cuts := tx.lines()
	behind := func(a table.AskRecord) bool {
		st, _ := tx.table.Status(a.By)
		return !st.Converting && isBehind(cuts, order{classHard, st.Priority, st.Ticket, a.By}, &st)
	}
	return len(cuts) > 0 && slices.ContainsFunc(tx.table.Snapshot().Claims, func(r table.ClaimRecord) bool {
		return slices.ContainsFunc(r.Asks, behind)
	})
}

// stood is where a claim stood in line when it was read. One that has just come stands behind all.
func (tx *transaction) stood(ref lockkeeper.Ref) order {
	if c := tx.view.claims[ref]; c != nil {
		return orderOf(c)
	}
	return order{class: classUnheard}
}

// lines are the regions of which only the head of the line was read, and its last.
func (tx *transaction) lines() map[region]order {
	cuts := make(map[region]order, len(tx.view.cuts))
	for i, last := range tx.view.cuts { // order does not matter
		cuts[tx.regions[i]] = last
	}
	return cuts
}

// placed takes its place in line out of what is told of a claim that stands behind the part that
// was read: there it is not known.
func (tx *transaction) placed(st lockkeeper.Status) lockkeeper.Status {
	if st.Position > 0 && isBehind(tx.lines(), tx.stood(st.Ref), &st) {
		st.Position, st.ETA = 0, 0
	}
	return st
}

// isBehind reports whether a claim of that order stands in a line of which cuts tells the last
// that was read, behind that one.
func isBehind(cuts map[region]order, mine order, st *lockkeeper.Status) bool {
	behind := func(r region) bool {
		last, cut := cuts[r]
		return cut && last.compare(mine) < 0
	}
	for _, g := range st.Grants {
		if behind(region{g.Path, at}) || behind(region{g.Path, below}) {
			return true
		}
		for up := range g.Path.Ancestors() {
			if behind(region{up, above}) || behind(region{up, at}) {
				return true
			}
		}
	}
	return false
}
