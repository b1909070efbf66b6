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

// transaction is one transaction of the database: see the package comment for its states.
//
// Latching and reading are separate statements under READ COMMITTED. So all rows that it reads were
// committed before it had its latches, and no other transaction changes them before its commit.
// Sessions are renewed without latches; their versions show whether a row changed in between.
//
// It notifies nobody before the commit.
type transaction struct {
	e        *Engine
	link     link
	scope    *scope
	regions  []region
	patience patience
	blocks   int // of numbers, that it draws
	needed   int // blocks that the latest attempt needed
	draws    int // attempts to draw more

	view    *view
	table   *table.Table
	now     time.Duration
	broken  error // why it must not commit
	dropped []string

	attached    map[string]session // process and attempt of the sessions that it attaches
	granted     []lockkeeper.Ref
	asked       bool             // an ask to yield began or ended
	askedBeyond bool             // after some step a claim beyond a prefix asked
	begun       []lockkeeper.Ref // claims that its commands made
	known       []lockkeeper.Ref // claims that should have rows
	news        news
	ended       map[lockkeeper.Ref]lockkeeper.Status // ended claims with blockers
	wakeups     map[wakeup]bool
	elsewhere   []lockkeeper.Target // paths of ended holds that were not read
	closed      map[string]bool
	holdTimes   []table.HoldTimeRecord
	after       []func() // run after the commit
}

var (
	errPartial = errors.New("the prefix of a queue is not enough")
	errWider   = errors.New("an ended hold concerns paths that were not read")
	errNumbers = errors.New("the transaction needs more fences or tickets than it drew")
)

func (tx *transaction) send(ctx context.Context, all ...statement) error {
	return tx.link.send(ctx, all)
}

// reset undoes everything that an attempt has read and decided.
func (tx *transaction) reset() {
	tx.view = newView()
	tx.table, tx.broken, tx.dropped = nil, nil, nil
	tx.attached = make(map[string]session)
	tx.granted, tx.asked, tx.askedBeyond, tx.begun = nil, false, false, nil
	tx.news, tx.holdTimes, tx.after = news{}, nil, nil
	tx.ended = make(map[lockkeeper.Ref]lockkeeper.Status)
	tx.wakeups = make(map[wakeup]bool)
	tx.elsewhere, tx.closed = nil, make(map[string]bool)
}

// load makes a table of the rows read.
func (tx *transaction) load() error {
	c := tx.view
	c.applyAcks()
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
			snap.Sessions = append(snap.Sessions, tx.endingSession(id, s))
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
	for _, p := range c.holdTimes { // order does not matter
		snap.HoldTimes = append(snap.HoldTimes, p)
	}
	tx.table = table.New()
	if err := tx.table.Load(snap); err != nil {
		return err
	}
	tx.table.Track()
	return nil
}

// applyAcks clears the unacknowledged ends of claims whose sessions have acknowledged the lease
// that stated them (R12). A transaction writes acknowledgements to the rows of sessions alone,
// because it does not read all claims of a session.
func (c *view) applyAcks() {
	for ref, found := range c.claims { // order does not matter
		s := c.sessions[ref.Session]
		if s != nil && found.ClaimRecord.State != lockkeeper.Ended && found.StatedIn != 0 && found.StatedIn <= s.Acked {
			found.UnackedEnd = 0
		}
	}
}

// endingSession returns a session that has ended and still has claims as an open one that expires
// now: so its claims end by the rules. s is nil if its row was removed by hand.
func (tx *transaction) endingSession(id string, s *session) table.SessionRecord {
	if s == nil {
		return table.SessionRecord{ID: id, TTL: lockkeeper.MinTTL, Deadline: tx.now, Promise: tx.now, Resumed: true}
	}
	r := s.SessionRecord
	r.Closed, r.Resumed, r.Deadline = false, true, tx.now
	return r
}

// concerned reports whether the table needs a freeze: it meets the latched paths, or the same
// command made another freeze that does.
func (tx *transaction) concerned(f table.FreezeRecord) bool {
	return slices.ContainsFunc(tx.view.freezes, func(g table.FreezeRecord) bool {
		return f.By == g.By &&
			tx.meetsFreeze(g.Path)
	})
}

// meetsFreeze reports whether a freeze of path meets the latched paths.
func (tx *transaction) meetsFreeze(path lockkeeper.Path) bool {
	for p := range tx.scope.paths {
		if p.Covers(path) || path.Covers(p) {
			return true
		}
	}
	return false
}

// step applies one command. Its answer is valid after the commit.
func (tx *transaction) step(c table.Command) (table.Reply, error) {
	if tx.broken != nil {
		return table.Reply{}, tx.broken
	}
	c.At = tx.now
	reply, err := tx.table.Step(&c)
	reply.Status = tx.hidePosition(reply.Status)
	tx.collect()
	return reply, err
}

// review ends claims that have fallen due, and grants claims whose blockers are gone.
func (tx *transaction) review() {
	_, _ = tx.step(table.Command{Op: table.Review}) // never refused
}

// collect prepares the notifications of a step.
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
		st = tx.hidePosition(st)
		if ev.Kind == table.AskChanged {
			tx.asked, tx.askedBeyond = true, tx.askedBeyond || tx.asksFromBeyond()
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
		tx.notify(&st)
	}
}

// notify prepares to notify the session of a claim, here or in another process.
func (tx *transaction) notify(st *lockkeeper.Status) {
	switch process := tx.processOf(st.Ref.Session); process {
	case tx.e.process:
		tx.news.add(*st)
	case "":
	default:
		tx.wakeups[wakeup{process, st.Ref}] = true
	}
}

// processOf returns the process that attached a session last; "" if it is not known. A session may
// have been attached here and then elsewhere, so its row counts.
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

// leftElsewhere notes the paths of an ended hold whose waiters, there or below, were not read:
// their quiet periods restart, and they may be granted.
func (tx *transaction) leftElsewhere(st *lockkeeper.Status) {
	for _, g := range st.Grants {
		if below, looked := tx.scope.paths[g.Path]; !looked || !below && g.Mode != lockkeeper.ModePermits {
			tx.elsewhere = append(tx.elsewhere, lockkeeper.Target{Path: g.Path, Mode: lockkeeper.ModeExclusive})
		}
	}
}

// verify returns an error if a decision may depend on rows that were not read.
func (tx *transaction) verify() error {
	if tx.broken != nil {
		return tx.broken
	}
	if tx.scope.add(tx.elsewhere) {
		return errWider
	}
	n, drawn := tx.table.Counters(), &tx.view.reading
	end := drawn.numbers + numbersAtOnce
	if drawn.last == drawn.numbers+uint64(tx.blocks-1)*numbersAtOnce { // else others have some between
		end = drawn.last + numbersAtOnce
	}
	if most := max(n.Fences, n.Tickets, n.Epochs); most >= end {
		tx.needed = int((most-drawn.numbers)/numbersAtOnce) + 1
		return errNumbers
	}
	return tx.verifyPrefixes()
}

// drawMore lets the next attempt draw as many blocks of numbers as this one needed. It reports false if there were
// enough attempts, or if these are too many.
func (tx *transaction) drawMore() bool {
	tx.blocks = tx.needed
	tx.draws++
	return tx.blocks <= mostBlocks && tx.draws <= mostDraws
}

// exclusiveAhead reports whether a claim of the prefix, up to last, waits for path exclusively, so
// that it blocks every claim beyond. A frozen claim blocks nobody (R18).
func (tx *transaction) exclusiveAhead(path lockkeeper.Path, last order) bool {
	for ref, c := range tx.view.claims { // order does not matter
		if waitsExclusively(c.Want.Targets, path) && classOf(c) == classHard && orderOf(c).compare(last) <= 0 {
			if st, ok := tx.table.Explain(ref); ok && st.State == lockkeeper.Waiting &&
				!slices.Contains(st.Waits, lockkeeper.Frozen) {
				return true
			}
		}
	}
	return false
}

// prefixEnded reports whether no claim of the prefix of a region waits any more.
func (tx *transaction) prefixEnded(r region, last order) bool {
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

// verifyPrefixes returns errPartial if the decisions may differ from those of a full read: see
// "Partial reads" in the package comment.
func (tx *transaction) verifyPrefixes() error {
	if len(tx.view.prefixEnds) == 0 {
		return nil
	}
	for _, ref := range tx.begun {
		st, _ := tx.table.Status(ref)
		if st.Converting || st.State == lockkeeper.Waiting && st.Inside != (lockkeeper.Ref{}) {
			return errPartial
		}
	}
	prefixes := tx.prefixes()
	for i, last := range tx.view.prefixEnds { // order does not matter
		if tx.scope.limit < tx.scope.prefix && !tx.exclusiveAhead(tx.regions[i].path, last) {
			return errPartial // claims beyond the short prefix may be granted beside it
		}
	}
	for _, ref := range tx.granted {
		if st, _ := tx.table.Status(ref); isBeyond(prefixes, tx.orderRead(ref), &st) {
			return errPartial
		}
	}
	if tx.askedBeyond || tx.asked && tx.asksFromBeyond() {
		return errPartial
	}
	return nil
}

// asksFromBeyond reports whether a claim beyond a prefix asks a holder to yield (R10).
func (tx *transaction) asksFromBeyond() bool {
	prefixes := tx.prefixes()
	beyond := func(a table.AskRecord) bool {
		st, _ := tx.table.Status(a.By)
		return !st.Converting && isBeyond(prefixes, order{classHard, st.Priority, st.Ticket, a.By}, &st)
	}
	return len(prefixes) > 0 && slices.ContainsFunc(tx.table.Snapshot().Claims, func(r table.ClaimRecord) bool {
		return slices.ContainsFunc(r.Asks, beyond)
	})
}

// orderRead returns the order of a claim when it was read. A new claim comes after all others.
func (tx *transaction) orderRead(ref lockkeeper.Ref) order {
	if c := tx.view.claims[ref]; c != nil {
		return orderOf(c)
	}
	return order{class: classUnacked}
}

// prefixes returns the regions of which only a prefix was read, each with the last claim of it.
func (tx *transaction) prefixes() map[region]order {
	prefixes := make(map[region]order, len(tx.view.prefixEnds))
	for i, last := range tx.view.prefixEnds { // order does not matter
		prefixes[tx.regions[i]] = last
	}
	return prefixes
}

// hidePosition removes the position and the estimate from the status of a claim beyond a prefix,
// since the claims before it were not all read.
func (tx *transaction) hidePosition(st lockkeeper.Status) lockkeeper.Status {
	if st.Position > 0 && isBeyond(tx.prefixes(), tx.orderRead(st.Ref), &st) {
		st.Position, st.ETA = 0, 0
	}
	return st
}

// isBeyond reports whether a claim of order mine is beyond the prefix of one of its queues.
func isBeyond(prefixes map[region]order, mine order, st *lockkeeper.Status) bool {
	beyond := func(r region) bool {
		last, partial := prefixes[r]
		return partial && last.compare(mine) < 0
	}
	for _, g := range st.Grants {
		if beyond(region{g.Path, at}) || beyond(region{g.Path, below}) {
			return true
		}
		for up := range g.Path.Ancestors() {
			if beyond(region{up, above}) || beyond(region{up, at}) {
				return true
			}
		}
	}
	return false
}
