package sqllock

import (
	"context"
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// view has the rows that a transaction has read.
type view struct {
	reading    reading
	sessions   map[string]*session
	claims     map[lockkeeper.Ref]*rows.Claim
	freezes    []table.FreezeRecord
	holdTimes  map[lockkeeper.Path]table.HoldTimeRecord
	met        int           // rows found in the regions
	prefixEnds map[int]order // the last claim read, of regions of which only a prefix was read

	asked  map[lockkeeper.Ref]bool // claims nested in these have been read
	sought map[lockkeeper.Ref]bool // claims that have been read by reference
	absent map[string]bool         // sessions that have no row
}

func newView() *view {
	return &view{
		sessions:   make(map[string]*session),
		claims:     make(map[lockkeeper.Ref]*rows.Claim),
		holdTimes:  make(map[lockkeeper.Path]table.HoldTimeRecord),
		prefixEnds: make(map[int]order),
		asked:      make(map[lockkeeper.Ref]bool),
		sought:     make(map[lockkeeper.Ref]bool),
		absent:     make(map[string]bool),
	}
}

func (c *view) keepSession(s *session) { c.sessions[s.ID] = s }

// keepFound returns keep, which records a claim that a search found, and done, to call after the
// search. If a query returned LIMIT rows, the queue may be longer.
func (c *view) keepFound(s *search) (keep func(int, *rows.Claim), done func()) {
	waiting := make(map[int]int)
	keep = func(region int, found *rows.Claim) {
		c.claims[found.Ref] = found
		if region < 0 {
			return
		}
		c.met++
		c.asked[found.Ref] = c.asked[found.Ref] || s.deep
		if class := classOf(found); class != classHard && class != classSoft {
			return
		}
		waiting[region]++
		if last, any := c.prefixEnds[region]; !any || last.compare(orderOf(found)) < 0 {
			c.prefixEnds[region] = orderOf(found)
		}
	}
	done = func() {
		maps.DeleteFunc(c.prefixEnds, func(region int, _ order) bool { return s.limit == 0 || waiting[region] < s.limit })
	}
	return keep, done
}

// read begins the transaction, latches the scope, and reads its rows and all rows that those depend
// on. wider: the scope grew beyond what is latched, so the transaction has to begin again.
func (tx *transaction) read(ctx context.Context) (wider bool, err error) {
	s, d, c := tx.scope, tx.e.dialect, tx.view
	nearby, long, concurrent := tx.e.local.nearby(s.paths, s.prefix)
	knownLong, knownConcurrent := tx.e.long.known(s.paths)
	long, concurrent = long || knownLong, concurrent || knownConcurrent
	if long && s.limit > 0 && !concurrent && !s.longQueue {
		s.limit = s.shortPrefix
	}
	s.longQueue = s.longQueue || long
	for _, ref := range nearby {
		s.sessions[ref.Session], c.asked[ref] = true, true
	}
	search := tx.search()
	search.inside = nearby
	search.deep = long || len(nearby) > 0 // claims wait, so nesting matters
	for _, ref := range search.refs {
		c.sought[ref] = true
	}
	for _, ref := range sortedRefs(s.begun) {
		c.asked[ref] = true
		search.inside = append(search.inside, ref)
	}
	all := d.begin(tx.patience)
	all = append(all, d.latch(s.latches())...)
	all = append(all, d.clock(&c.reading, tx.blocks)...)
	if ids := slices.Sorted(maps.Keys(s.sessions)); len(ids) > 0 {
		all = append(all, d.sessions(ids, false, c.keepSession))
	}
	keep, done := c.keepFound(search)
	if !search.empty() {
		all = append(all, d.claims(search, keep))
	}
	all = append(all, d.freezes(func(f table.FreezeRecord) { c.freezes = append(c.freezes, f) }))
	keepHoldTime := func(p table.HoldTimeRecord) { c.holdTimes[p.Path] = p }
	unknown := tx.e.holdTimes.known(s.paths, keepHoldTime)
	if s.paths[lockkeeper.Root] {
		unknown = nil
		all = append(all, d.holdTimes(nil, keepHoldTime))
	} else if len(unknown) > 0 {
		all = append(all, d.holdTimes(unknown, keepHoldTime))
	}
	if err := tx.send(ctx, all...); err != nil {
		return false, err
	}
	done()
	tx.e.holdTimes.fill(unknown, c.holdTimes)
	if search.most > 0 && c.met >= search.most {
		s.longQueue = true
		return true, nil
	}
	tx.regions = search.regions
	return tx.readDependencies(ctx)
}

// search is the first search of a transaction.
func (tx *transaction) search() *search {
	s := tx.scope
	found := &search{
		refs: sortedRefs(s.refs), sessions: slices.Sorted(maps.Keys(s.entire)), regions: s.regions(),
	}
	switch {
	case s.longQueue:
		found.limit = s.limit
	case s.limit > 0:
		found.most = s.mostClaims
	}
	return found
}

func (s *search) empty() bool {
	return len(s.refs)+len(s.inside)+len(s.sessions)+len(s.renewed)+len(s.regions) == 0 && !s.everyone && !s.ended
}

func sortedRefs(set map[lockkeeper.Ref]bool) []lockkeeper.Ref {
	return slices.SortedFunc(maps.Keys(set), compareRefs)
}

func compareRefs(a, b lockkeeper.Ref) int {
	return order{ref: a}.compare(order{ref: b})
}

// readDependencies reads what the claims found depend on: their sessions, the claims that ask them
// to yield, and the claims nested in them and enclosing them.
func (tx *transaction) readDependencies(ctx context.Context) (wider bool, err error) {
	for {
		if tx.widen() {
			return true, nil
		}
		sessions, search := tx.missing()
		if len(sessions) == 0 && search.empty() {
			return false, nil
		}
		d, c := tx.e.dialect, tx.view
		var all []statement
		if len(sessions) > 0 {
			all = append(all, d.sessions(sessions, false, c.keepSession))
		}
		if !search.empty() {
			all = append(all, d.claims(search, func(_ int, found *rows.Claim) { c.claims[found.Ref] = found }))
		}
		if err := tx.send(ctx, all...); err != nil {
			return false, err
		}
		for _, id := range sessions {
			c.absent[id] = c.sessions[id] == nil
		}
	}
}

// widen adds to the scope the paths of the claims that this transaction may decide about: those of
// its commands, and all that wait. It reports whether the scope grew, even if the whole tree is
// latched.
func (tx *transaction) widen() (wider bool) {
	s := tx.scope
	tx.enclosing()
	for ref, c := range tx.view.claims { // order does not matter
		class := classOf(c)
		switch {
		case class < 0 || class == classUnacked:
		case class == classHeld && !s.refs[ref] && !s.entire[ref.Session]:
			// If it ends now, the transaction begins again (see leftElsewhere).
		default:
			wider = s.addClaim(c) || wider
		}
	}
	return wider
}

// enclosing adds to the scope the claims that enclose a new claim.
func (tx *transaction) enclosing() {
	s := tx.scope
	for before := -1; before != len(s.around); {
		before = len(s.around)
		for ref := range s.around { // order does not matter: it repeats until there are no more
			if c := tx.view.claims[ref]; c != nil && c.Want.Inside != (lockkeeper.Ref{}) {
				s.refs[c.Want.Inside], s.around[c.Want.Inside] = true, true
			}
		}
	}
}

// missing returns what readDependencies has to read next.
func (tx *transaction) missing() (sessions []string, more *search) {
	c := tx.view
	need := make(map[string]bool)
	more = &search{}
	waits := slices.ContainsFunc(slices.Collect(maps.Values(c.claims)), func(c *rows.Claim) bool {
		class := classOf(c)
		return class == classConverting || class == classHard || class == classSoft
	})
	seek := func(ref lockkeeper.Ref) {
		if c.claims[ref] == nil && !c.sought[ref] {
			c.sought[ref] = true
			more.refs = append(more.refs, ref)
		}
	}
	for ref := range tx.scope.around { // order does not matter: sorted below
		seek(ref)
	}
	for ref, found := range c.claims { // order does not matter: sorted below
		for _, ask := range found.Asks {
			seek(ask.By) // a claim asks wherever it waits
		}
		if class := classOf(found); class >= 0 && c.sessions[ref.Session] == nil && !c.absent[ref.Session] {
			need[ref.Session] = true
			if found.ClaimRecord.State == lockkeeper.Held {
				more.refs = append(more.refs, ref) // again after its session: a renewal between the two reads would be lost
			}
		}
		if found.ClaimRecord.State == lockkeeper.Ended || !waits && !tx.scope.mayKeepWaiting(found) {
			continue
		}
		if in := found.Want.Inside; in != (lockkeeper.Ref{}) {
			seek(in)
		}
		if !c.asked[ref] {
			c.asked[ref] = true
			more.inside = append(more.inside, ref)
		}
	}
	for _, f := range c.freezes { // the end of a freeze is kept for its session
		if tx.meetsFreeze(f.Path) && c.sessions[f.By.Session] == nil && !c.absent[f.By.Session] {
			need[f.By.Session] = true
		}
	}
	slices.SortFunc(more.inside, compareRefs)
	slices.SortFunc(more.refs, compareRefs)
	return slices.Sorted(maps.Keys(need)), more
}
