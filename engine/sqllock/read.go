package sqllock

import (
	"context"
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// view is what a transaction has read.
type view struct {
	reading  reading
	sessions map[string]*session
	claims   map[lockkeeper.Ref]*rows.Claim
	freezes  []table.FreezeRecord
	paces    map[lockkeeper.Path]table.HoldTimeRecord
	met      int           // how many rows the regions had
	cuts     map[int]order // of the regions of which only the head was read: its last

	asked  map[lockkeeper.Ref]bool // who is inside these claims has been asked for
	sought map[lockkeeper.Ref]bool // claims that have been looked for by their names
	absent map[string]bool         // sessions that are in no row
}

func newView() *view {
	return &view{
		sessions: make(map[string]*session),
		claims:   make(map[lockkeeper.Ref]*rows.Claim),
		paces:    make(map[lockkeeper.Path]table.HoldTimeRecord),
		cuts:     make(map[int]order),
		asked:    make(map[lockkeeper.Ref]bool),
		sought:   make(map[lockkeeper.Ref]bool),
		absent:   make(map[string]bool),
	}
}

func (c *view) keepSession(s *session) { c.sessions[s.ID] = s }

// keepFound returns what notes the claims that a search finds, and what is to be
// called after it. A line of which as many were found as were asked for may go on.
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
		if last, any := c.cuts[region]; !any || last.compare(orderOf(found)) < 0 {
			c.cuts[region] = orderOf(found)
		}
	}
	done = func() {
		maps.DeleteFunc(c.cuts, func(region int, _ order) bool { return s.line == 0 || waiting[region] < s.line })
	}
	return keep, done
}

// read begins the transaction and reads what s says. It takes in what that depends
// on, and reports whether s has become wider than what is latched and read: then all
// must begin anew.
func (tx *transaction) read(ctx context.Context) (wider bool, err error) {
	s, d, c := tx.scope, tx.e.dialect, tx.view
	near, long, apart := tx.e.local.near(s.paths, s.head)
	elsewhere, scattered := tx.e.long.known(s.paths)
	if long = long || elsewhere; long && s.line > 0 && !apart && !scattered && !s.long {
		s.line = s.tip
	}
	s.long = s.long || long
	for _, ref := range near {
		s.sessions[ref.Session], c.asked[ref] = true, true
	}
	search := tx.search()
	search.inside = near
	search.deep = long || len(near) > 0 // somebody waits, so it matters who is inside of whom
	for _, ref := range search.refs {
		c.sought[ref] = true
	}
	for _, ref := range sortedRefs(s.begun) {
		c.asked[ref] = true
		search.inside = append(search.inside, ref)
	}
	all := d.begin(tx.patience)
	all = append(all, d.latch(s.latches())...)
	all = append(all, d.clock(&c.reading, true)...)
	if ids := slices.Sorted(maps.Keys(s.sessions)); len(ids) > 0 {
		all = append(all, d.sessions(ids, false, c.keepSession))
	}
	keep, done := c.keepFound(search)
	if !search.empty() {
		all = append(all, d.claims(search, keep))
	}
	all = append(all, d.freezes(func(f table.FreezeRecord) { c.freezes = append(c.freezes, f) }))
	keepPace := func(p table.HoldTimeRecord) { c.paces[p.Path] = p }
	unknown := tx.e.paces.known(s.paths, keepPace)
	if s.paths[lockkeeper.Root] {
		unknown = nil
		all = append(all, d.paces(nil, keepPace))
	} else if len(unknown) > 0 {
		all = append(all, d.paces(unknown, keepPace))
	}
	if err := tx.send(ctx, all...); err != nil {
		return false, err
	}
	done()
	tx.e.paces.heard(unknown, c.paces)
	if search.most > 0 && c.met >= search.most {
		s.long = true
		return true, nil
	}
	tx.regions = search.regions
	return tx.follow(ctx)
}

// search is what is looked for first.
func (tx *transaction) search() *search {
	s := tx.scope
	found := &search{
		refs: sortedRefs(s.refs), sessions: slices.Sorted(maps.Keys(s.entire)), regions: s.regions(),
	}
	switch {
	case s.long:
		found.line = s.line
	case s.line > 0:
		found.most = s.few
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

// follow reads what that which was found depends on: the sessions of claims, who asks
// them to yield, who waits inside of them, and in whose hold they are made.
func (tx *transaction) follow(ctx context.Context) (wider bool, err error) {
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

// widen takes into the scope where claims meet others about which this
// transaction may decide: those that it was asked for, and all that wait. It
// reports whether that is more than was read, even if the whole tree is latched.
func (tx *transaction) widen() (wider bool) {
	s := tx.scope
	tx.outwards()
	for ref, c := range tx.view.claims { // order does not matter: all are taken in
		class := classOf(c)
		switch {
		case class < 0 || class == classUnheard:
		case class == classHeld && !s.refs[ref] && !s.entire[ref.Session]:
			// Should it end now, all begins anew (see transaction.leftElsewhere).
		default:
			wider = s.addClaim(c) || wider
		}
	}
	return wider
}

// outwards takes in the claims in whose holds those are made that are around one that begins.
func (tx *transaction) outwards() {
	s := tx.scope
	for before := -1; before != len(s.around); {
		before = len(s.around)
		for ref := range s.around { // order does not matter: it goes on until there are no more
			if c := tx.view.claims[ref]; c != nil && c.Want.Inside != (lockkeeper.Ref{}) {
				s.refs[c.Want.Inside], s.around[c.Want.Inside] = true, true
			}
		}
	}
}

// missing is what has to be read still.
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
			seek(ask.By) // who asks, wherever it waits, goes on to ask
		}
		if class := classOf(found); class >= 0 && c.sessions[ref.Session] == nil && !c.absent[ref.Session] {
			need[ref.Session] = true
			if found.ClaimRecord.State == lockkeeper.Held {
				more.refs = append(more.refs, ref) // after its session: a renewal between the two would be undone
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
	for _, f := range c.freezes { // whose end is remembered for those who made them
		if tx.meetsFreeze(f.Path) && c.sessions[f.By.Session] == nil && !c.absent[f.By.Session] {
			need[f.By.Session] = true
		}
	}
	slices.SortFunc(more.inside, compareRefs)
	slices.SortFunc(more.refs, compareRefs)
	return slices.Sorted(maps.Keys(need)), more
}
