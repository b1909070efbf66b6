package mutants

// A mutant is one bug: in file, the text before is replaced by after. before
// must stand in the file exactly once, so that a mutant can't get lost when the
// code moves on.
type mutant struct {
	bug     string // what it does to a user
	file    string // below the root of the module
	before  string
	after   string
	catcher string // package and test that fail with it, such as "table TestStories/r05"
}

var mutants = []mutant{
	{
		"a reader overtakes a writer that waits", "table/grant.go",
		`if p.node.line != nil && p.node.line.waitsFor(against, p.claim) {`,
		`if p.kind != kindS && p.node.line != nil && p.node.line.waitsFor(against, p.claim) {`,
		"table TestStories/r05_readers",
	},
	{
		"the limit is read from the latest holder, not from the caller", "table/permits.go",
		`free := p.limit - p.node.units - p.units`,
		"limit := p.limit\n\tif h := p.node.held[kindP]; h != nil {\n\t\tlimit = h.limit\n\t}\n\tfree := limit - " +
			"p.node.units - p.units",
		"table TestStories/r07_limit",
	},
	{
		"who waits under a small limit holds back those with a larger one", "table/permits.go",
		`if l.permits[i].limit < p.limit {`,
		`if l.permits[i].limit < 0 {`,
		"table TestStories/r07_small",
	},
	{
		"a claim below a path ignores who holds the path", "table/door.go",
		`for path := range target.Path.Ancestors() {`,
		"for path := range target.Path.Ancestors() {\n\t\t\tif true {\n\t\t\t\tbreak\n\t\t\t}",
		"table TestStories/r03_parents",
	},
	{
		"a thief takes without waiting for the acknowledgement", "table/steal.go",
		`if end > t.now {`,
		`if false && end > t.now {`,
		"table TestStories/r10_take",
	},
	{
		"equals can be robbed", "table/steal.go",
		`return h.want.Priority < s.thief.want.Priority && h.pass != s.outer`,
		`return h.want.Priority <= s.thief.want.Priority && h.pass != s.outer`,
		"table TestStories/r10_ask",
	},
	{
		"a holder is robbed although somebody else is ahead of the thief", "table/steal.go",
		`p.node.line != nil && p.node.line.waitsFor(against, s.thief) {`,
		`p.node.line != nil && false {`,
		"table TestStories/r10_higher",
	},
	{
		"a thief does not see that a holder left", "table/node.go",
		"p.node.drop(p)\n\tt.changeAt(p.node, p.kind)",
		"p.node.drop(p)",
		"internal/model TestCompare",
	},
	{
		"a thief does not see that its claim became nested in a hold", "table/door.go",
		`t.outdateInside(c.ref)`,
		`_ = c.ref`,
		"table TestThiefKnows",
	},
	{
		"a thief does not see that its claim is no longer nested in a hold", "table/ending.go",
		`t.outdateInside(c.ref)`,
		`_ = c.ref`,
		"table TestThiefKnows",
	},
	{
		"the search for the fewest units has no bound", "table/fewest.go",
		`len(sums) > mostSums {`,
		`len(sums) > 1<<16 {`,
		"table TestSearchForUnits",
	},
	{
		"after a restart a session that may have renewed has only the rest of its TTL", "table/door.go",
		`if s.resumed {`,
		`if s.resumed && s.ttl < 0 {`,
		"internal/model TestPromises",
	},
	{
		"every restart gives dead sessions a whole TTL again", "table/door.go",
		`if s.resumed {`,
		`if s != nil {`,
		"table TestStories/r19_repeated",
	},
	{
		"time does not pass for dead sessions while the engine restarts again and again", "internal/keeper/log.go",
		`return k.record.at + recordTime`,
		`return lockkeeper.Forever`,
		"engine/disklock TestDeadSessionEndsThoughItRestarts",
	},
	{
		"restoring a long queue scans the queue for each claim", "table/restore.go",
		`sortClaims(waiting)`,
		`_ = waiting`,
		"table TestRestoreSortsOnce",
	},
	{
		"when many claims end, each end checks all soft claims again", "table/grant.go",
		`if a.disturbed.has(p.kind) {`,
		`if false {`,
		"table TestEndOfASession",
	},
	{
		"an unacknowledged holder still blocks after its time has passed", "table/ghost.go",
		`g.due[0].at <= t.now; {`,
		`g.due[0].at < 0; {`,
		"internal/model TestCompare",
	},
	{
		"each end and grant searches all claims for deadlocks", "table/knot.go",
		`c.nested() || len(t.named[c.ref]) > 0 {`,
		`c != nil {`,
		"table TestSearchForKnots",
	},
	{
		"a take may last longer than the holder's lease", "table/steal.go",
		`end = min(end, ttl)`,
		`end = max(end, ttl)`,
		"internal/model TestCompare",
	},
	{
		"who waits behind a cancelled claim is not woken", "table/grant.go",
		`if givesUp {`,
		`if givesUp && c.session == nil {`,
		"table TestStories/r05_cancel",
	},
	{
		"an upgrade keeps the old fence", "table/grant.go",
		"t.fences++\n\tc.fence = t.fences",
		"if first {\n\t\tt.fences++\n\t\tc.fence = t.fences\n\t}",
		"table TestStories/r14",
	},
	{
		"a hold that was taken from somebody who may not know passes for confirmed", "table/ending.go",
		`if held && ghost > t.now {`,
		`if false && held && ghost > t.now {`,
		"table TestStories/r10_take",
	},
	{
		"a soft writer holds back readers while it waits", "table/claim.go",
		`return c.want.WriterPolicy == lockkeeper.Soft && len(c.held) == 0`,
		`return c.want.WriterPolicy == lockkeeper.Soft && len(c.held) < 0`,
		"table TestStories/r09_soft",
	},
	{
		"a hold does not disturb the quiet period", "table/grant.go",
		`q.claim.quiet = t.now`,
		`_ = t.now`,
		"table TestStories/r09_quiet",
	},
	{
		"priorities are not looked at", "table/claim.go",
		`cmp.Compare(d.want.Priority, c.want.Priority); o != 0`,
		`cmp.Compare(d.want.Priority, c.want.Priority); o > 1`,
		"table TestStories/r04",
	},
	{
		"a session that has not resumed is granted a lock", "table/grant.go",
		`if len(c.wanted) == 0 || c.frozen || !c.session.resumed || !t.compatible(c) {`,
		`if len(c.wanted) == 0 || c.frozen || !t.compatible(c) {`,
		"table TestStories/r19",
	},
	{
		"a key of an older epoch still works", "table/table.go",
		`s != nil && s.epoch == k.Epoch && s.resumed`,
		`s != nil && s.resumed`,
		"internal/model TestCompare",
	},
	{
		"deadlocks are not looked for", "table/knot.go",
		"if !t.suspect {\n\t\treturn false\n\t}",
		"if !t.suspect || t.suspect {\n\t\treturn false\n\t}",
		"table TestStories/r15_deadlock",
	},
	{
		"the oldest of a knot is refused", "table/knot.go",
		`if c.ticket > youngest.ticket {`,
		`if c.ticket < youngest.ticket {`,
		"table TestStories/r15_deadlock",
	},
	{
		"a wait keeps back only the hold next around it", "table/knot.go",
		`for d := c; d != nil && d.pass != t.passes; d = t.outer(d) {`,
		`for d, n := c, 0; d != nil && d.pass != t.passes && n < 2; d, n = t.outer(d), n+1 {`,
		"table TestStories/r15_three_levels",
	},
	{
		"nobody seems to need what waits inside", "table/knot.go",
		`for d := range t.around(c) {
		if d.pass == t.passes {`,
		`for d := range t.around(c) {
		if d.pass != d.pass {`,
		"table TestStories/r15_around_itself",
	},
	{
		"a thief robs a hold that it is inside of", "table/steal.go",
		`return h.want.Priority < s.thief.want.Priority && h.pass != s.outer`,
		`return h.want.Priority < s.thief.want.Priority && s != nil`,
		"table TestStories/r10_siblings",
	},
	{
		"a thief may not rob its siblings", "table/steal.go",
		`return h.want.Priority < s.thief.want.Priority && h.pass != s.outer`,
		`return h.want.Priority < s.thief.want.Priority && h.pass != s.outer && (!s.thief.nested() || s.thief.want.Inside != h.want.Inside)`,
		"table TestStories/r10_siblings",
	},
	{
		"a knot that closes from above is overlooked", "table/grant.go",
		`if len(t.named[c.ref]) > 0 || (t.erratic()`,
		`if len(t.named[c.ref]) > 1<<30 || (t.erratic()`,
		"internal/model TestCompare",
	},
	{
		"a soft claim's turn makes no knot", "table/grant.go",
		`(t.erratic() || t.joint > 0 && c.want.WriterPolicy == lockkeeper.Soft) && t.matters(c) {`,
		`t.joint < 0 {`,
		"table TestStories/r15_soft_turn",
	},
	{
		"a claim that has ended still counts as made inside another", "table/knot.go",
		"siblings := t.named[c.want.Inside]\n",
		"if c != nil {\n\t\treturn\n\t}\n\tsiblings := t.named[c.want.Inside]\n",
		"table TestStories/r15_siblings",
	},
	{
		"the engine is told a hold around the innermost one", "reenter.go",
		`cl.want.Inside = l.claim.ref()
			return`,
		`cl.want.Inside = l.claim.ref()`,
		". TestInsideIsTheInnermostHold",
	},
	{
		"what was taken away passes for a usual length", "table/pace.go",
		`case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Overdue:`,
		`case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Overdue, lockkeeper.Stolen:`,
		"table TestStories/r17_estimate",
	},
	{
		"the latest hold alone says how long holds last", "table/pace.go",
		`p.lasts+(lasted-p.lasts)/4`,
		`p.lasts+(lasted-p.lasts)`,
		"table TestStories/r17_estimate",
	},
	{
		"paths are remembered for ever", "table/pace.go",
		`for len(t.paces.of) > MaxHoldTimes {`,
		`for len(t.paces.of) > 1<<30 {`,
		"table TestPacesAreBounded",
	},
	{
		"a hold that lasts longer than usual is as good as over", "table/estimate.go",
		`if rest < 0 || t.expected(c) == 0 {`,
		`if rest = max(rest, 0); t.expected(c) == 0 {`,
		"table TestStories/r17_estimate",
	},
	{
		"what those ahead wait for is not counted", "table/estimate.go",
		`if count++; count == 1 {`,
		`if count++; count == 0 {`,
		"table TestStories/r17_estimate_side",
	},
	{
		"readers are counted one after the other", "table/estimate.go",
		`if last == nil || last.clashes(d) {`,
		`if last == nil || last != d {`,
		"table TestStories/r17_estimate_side",
	},
	{
		"the last holder of permits is waited for", "table/estimate.go",
		`cmp.Compare(a.left, b.left)`,
		`cmp.Compare(b.left, a.left)`,
		"table TestStories/r17_estimate_side",
	},
	{
		"who waits in two lines is counted twice", "table/estimate.go",
		`if fronts[i].claim == next {
				fronts[i] = fronts[i].next
			}`,
		`if fronts[i].claim == next {
				fronts[i], next = fronts[i].next, nil
			}`,
		"internal/model TestCompare",
	},
	{
		"a freeze of a path does not forbid its parents", "table/freeze.go",
		`if target.Mode == lockkeeper.ModePermits {`,
		`if target.Mode <= lockkeeper.ModePermits {`,
		"table TestStories/r18_freeze",
	},
	{
		"an ended id can be granted again", "table/ending.go",
		`if tomb := s.ended[id]; tomb != nil && tomb.forget > t.now {`,
		`if tomb := s.ended[id]; tomb != nil && tomb.forget < t.now {`,
		"table TestStories/r16",
	},
	{
		"a late message of a lower revision is refused", "table/amend.go",
		`if w.Revision < c.want.Revision {`,
		`if w.Revision+1 < c.want.Revision {`,
		"table TestStories/r16",
	},
	{
		"the bound of the wait ends the hold", "table/grant.go",
		`c.bound, c.undone, c.text = forever, lockkeeper.NoReason, ""`,
		`c.undone, c.text = lockkeeper.NoReason, ""`,
		"table TestStories/r08",
	},
	{
		"a claim that an attach does not name lives on", "table/door.go",
		`if c.lapse == nil && !named(c.ref.ID) {`,
		`if c.lapse == nil && !named(c.ref.ID) && c.waiting() {`,
		"table TestStories/r19",
	},
	{
		"a lapsed hold is free before its end", "table/lapse.go",
		`stated.end = min(stated.end, c.session.deadline)`,
		`stated.end = t.now`,
		"table TestStories/r12_lapsed",
	},
	{
		"a client chooses the end of its lapsed hold", "table/lapse.go",
		`stated.end = min(stated.end, c.session.deadline)`,
		`stated.end += 0`,
		"table TestStories/r12_lapsed",
	},
	{
		"a lapsed hold ends for a reason that its holder does not report", "table/ending.go",
		`reason, text = c.lapse.reason, c.lapse.text`,
		`text = c.lapse.text`,
		"table TestStories/r12_lapsed",
	},
	{
		"one slot is given out twice", "table/permits.go",
		`s.taken[s.low] |= 1 << bit`,
		`s.taken[s.low] |= 0 << bit`,
		"table TestStories/r07_limit",
	},
	{
		"a snapshot forgets who asks whom", "table/record.go",
		`r.Asks = append(r.Asks, AskRecord{By: a.by.ref, End: a.end})`,
		`_ = AskRecord{By: a.by.ref, End: a.end}`,
		"table TestRestoreAnywhere",
	},
	{
		"a loaded copy of the table misses an end", "table/record.go",
		`t.dirty.ended = append(t.dirty.ended, tomb)`,
		`_ = append(t.dirty.ended, tomb)`,
		"table TestRestoreAnywhere",
	},
	{
		"a holder counts its lease from the answer, not from the question", "session.go",
		`c.good, c.endsAt = max(c.good, sent), lease.EndsAt`,
		`c.good, c.endsAt = max(c.good, c.clock()), lease.EndsAt`,
		". TestDeadlineCountsFromSending",
	},
	{
		"the first release of a lock that was taken twice frees it", "hold.go",
		`if cl.live--; cl.live > 0 {`,
		`if cl.live = 0; cl.live > 0 {`,
		". TestReentranceIsCounted",
	},
	{
		"a grant that arrives as the wait is given up is kept", "giveup.go",
		"if err := c.endForGood(ctx, cl); err != nil {",
		"c.unlock()\n\tif err := error(nil); err != nil {",
		". TestGrantAsContextEndsIsGivenBack",
	},
	{
		"leases do not run out in a synctest bubble", "bootclock_linux.go",
		`return (&furtherClock{boot: boot, own: monotonicClock()}).now`,
		`return boot`,
		". TestDefaultClockCountsLeasesInABubble",
	},
	{
		"the bound of a wait does not include the time to reach the engine", "acquire.go",
		`want.Wait = max(time.Until(cl.due), time.Nanosecond)`,
		`_ = max(time.Until(cl.due), time.Nanosecond)`,
		". TestWaitBoundCountsFromTheCall",
	},
	{
		"what was lost comes back with a late attach", "session.go",
		`c.settle(c.clock()) // what was lost meanwhile stays lost`,
		`c.alive = true`,
		". TestAttachRevivesNothing",
	},
	{
		"an attach that comes late takes the session back", "table/door.go",
		`if s != nil && s.epoch != want.Epoch {`,
		`if s != nil && s.epoch < want.Epoch {`,
		"table TestStories/r19_late",
	},
	{
		"who knows of no epoch takes a session over unasked", "table/door.go",
		`if s != nil && s.epoch != want.Epoch {`,
		`if s != nil && want.Epoch != 0 && s.epoch != want.Epoch {`,
		"engine/memlock TestConformance/R19",
	},
	{
		"a client does not remember the epoch that a refusal told", "session.go",
		"c.epoch = epoch\n",
		"_ = epoch\n",
		". TestTakeoverOnPurpose",
	},
	{
		"a claim that comes long after its end is made", "table/door.go",
		`if w.ID < s.answered {`,
		`if w.ID < 0*s.answered {`,
		"table TestStories/r16_lowest_open",
	},
	{
		"what was released is remembered for a TTL, however much it is", "table/ending.go",
		`if s.ttl == 0 || tomb.known && tomb.ref.ID < s.answered {`,
		`if s.ttl == 0 {`,
		". TestAnsweredClaims",
	},
	{
		"what was refused at once is remembered for a TTL, however much it is", "table/door.go",
		`c.tomb.known = true // by this answer`,
		`_ = c.tomb.known`,
		". TestAnsweredClaims",
	},
	{
		"an end that its session may not know is forgotten at once", "table/ending.go",
		`if tomb != nil && tomb.known {`,
		`if tomb != nil {`,
		"internal/model TestCompare",
	},
	{
		"ids of an older epoch bind a new one", "table/door.go",
		`s.answered = 0`,
		`s.answered += 0`,
		"table TestStories/r16_lowest_open",
	},
	{
		"a claim that is out is taken for answered", "answered.go",
		`return !cl.answered || cl.resend`,
		`return false`,
		". TestWhatIsOut",
	},
	{
		"a claim that is asked anew is taken for answered", "answered.go",
		`return !cl.answered || cl.resend`,
		`return !cl.answered`,
		". TestWhatIsAskedAnew",
	},
	{
		"a freeze that is out is taken for answered", "answered.go",
		`return c.freezing[id]`,
		`return false`,
		". TestWhatIsOut",
	},
	{
		"an answer that was given passes for heard", "table/hearing.go",
		`if c.session.heard == 0 {`,
		`if c.session.heard >= 0 {`,
		"table TestStories/r12_acked",
	},
	{
		"to hear any lease is to hear of every end", "table/hearing.go",
		`c.toldIn != 0 && c.toldIn <= heard`,
		`c.toldIn <= heard+c.toldIn`,
		"internal/model TestCompare",
	},
	{
		"what the answer to a claim told passes for heard with any lease", "table/hearing.go",
		`if c.believed != c.told && c.toldIn != 0 && c.toldIn`,
		`if c.believed != c.told && c.toldIn`,
		"internal/model TestCompare",
	},
	{
		"a client keeps to itself that it heard of an end", "session.go",
		"if c.owed > 0 {\n\t\tc.renewSoon = true",
		"if c.owed > 0 {",
		". TestHeardEndIsConfirmed",
	},
	{
		"a client says that it heard what it did not", "session.go",
		`c.heard.Store(lease.Number)`,
		`c.heard.Store(lease.Number + 1)`,
		". TestUnheardEndIsUnconfirmed",
	},
}
