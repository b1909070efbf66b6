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
		"a thief goes on asking after a holder left", "table/tree.go",
		"p.drop()\n\tt.changeAbove(p)",
		"p.drop()",
		"internal/model TestCompare",
	},
	{
		"a thief does not see that its claim became nested in a hold", "table/requests.go",
		`t.markThievesInside(c.ref())`,
		`_ = c.ref`,
		"table TestThiefKnows",
	},
	{
		"a thief does not see that its claim is no longer nested in a hold", "table/ending.go",
		`t.markThievesInside(c.ref())`,
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
		"after a restart a session that may have renewed has only the rest of its TTL", "table/requests.go",
		`if s.resumed {`,
		`if s.resumed && s.ttl < 0 {`,
		"internal/model TestPromises",
	},
	{
		"time does not pass for dead sessions while the engine restarts again and again", "internal/keeper/log.go",
		`return k.record.at + recordInterval`,
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
		`if a.disturbed.has(k) {`,
		`if false {`,
		"table TestEndOfASession",
	},
	{
		"an unacknowledged holder still blocks after its time has passed", "table/unacked.go",
		`g.due[0].at <= t.now; {`,
		`g.due[0].at < 0; {`,
		"internal/model TestCompare",
	},
	{
		"each end and grant searches all claims for deadlocks", "table/deadlock.go",
		`c.nested() || len(t.nestedIn[c.ref()]) > 0 {`,
		`c != nil {`,
		"table TestSearchForDeadlocks",
	},
	{
		"a take may last longer than the holder's lease", "table/steal.go",
		`delay = min(delay, ttl)`,
		`delay = max(delay, ttl)`,
		"internal/model TestCompare",
	},
	{
		"a part of the TTL is one of the default TTL", "table/steal.go",
		`cmp.Or(ttl, lockkeeper.DefaultTTL)`,
		`cmp.Or(lockkeeper.DefaultTTL, ttl)`,
		"internal/model TestCompare",
	},
	{
		"a key of an older epoch still works", "table/table.go",
		`s != nil && s.epoch == k.Epoch && s.resumed`,
		`s != nil && s.resumed`,
		"internal/model TestCompare",
	},
	{
		"a deadlock that a grant of the outer claim completes is overlooked", "table/grant.go",
		`if len(t.nestedIn[c.ref()]) > 0 || (t.endMayDeadlock()`,
		`if len(t.nestedIn[c.ref()]) > 1<<30 || (t.endMayDeadlock()`,
		"internal/model TestCompare",
	},
	{
		"nodes of a cluster describe one deadlock differently, and stop", "table/deadlock.go",
		`sortClaims(idle) //`,
		`_ = idle //`,
		"table TestDeadlockIsDescribedAlike",
	},
	{
		"a node of a cluster refuses a call that is in the log", "engine/quorumlock/internal/replica/leader.go",
		`return r.led.arrivals.first(m)`,
		`return true`,
		"engine/quorumlock/internal/replica TestFormerLeaderRefusesOnlyWhatItNeverHad",
	},
	{
		"the grant of a soft claim completes no deadlock", "table/grant.go",
		`t.blockingWaits > 0 && c.want.WriterPolicy == lockkeeper.Soft) && t.mayAffectDeadlock(c) {`,
		`t.blockingWaits < 0) && t.blockingWaits < 0 {`,
		"table TestStories/r15_soft_turn",
	},
	{
		"the engine is told a hold around the innermost one", "reenter.go",
		`cl.want.Inside = l.claim.ref()
			return`,
		`cl.want.Inside = l.claim.ref()`,
		". TestInsideIsTheInnermostHold",
	},
	{
		"hold times of any number of paths are remembered", "table/holdtime.go",
		`for len(t.holdTimes.of) > MaxHoldTimes {`,
		`for len(t.holdTimes.of) > 1<<30 {`,
		"table TestHoldTimesAreBounded",
	},
	{
		"a claim that waits in two queues is counted twice", "table/estimate.go",
		`if fronts[i].claim == next {
				fronts[i] = fronts[i].next
			}`,
		`if fronts[i].claim == next {
				fronts[i], next = fronts[i].next, nil
			}`,
		"internal/model TestCompare",
	},
	{
		"a client chooses the end of its lapsed hold", "table/lapse.go",
		`stated.end = min(stated.end, c.session().deadline)`,
		`stated.end += 0`,
		"table TestStories/r12_lapsed",
	},
	{
		"a snapshot forgets the requests to yield", "table/record.go",
		`r.Asks = append(r.Asks, AskRecord{By: a.by.ref(), End: a.end})`,
		`_ = AskRecord{By: a.by.ref(), End: a.end}`,
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
		`c.lease.Extend(sent, lease.TTL,`,
		`c.lease.Extend(c.clock(), lease.TTL,`,
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
		". TestGrantAsContextEndsIsReleased",
	},
	{
		"leases do not run out in a synctest bubble", "bootclock_linux.go",
		`return (&furtherClock{boot: boot, own: own}).now`,
		`_ = own; return boot`,
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
		`c.expireSession(c.clock()) // a hold that was lost meanwhile stays lost`,
		`c.lease.Alive = true`,
		". TestAttachRevivesNothing",
	},
	{
		"an attach that names no epoch takes a session over", "table/requests.go",
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
		"every released claim is remembered for a TTL", "table/ending.go",
		`if s.ttl == 0 || tomb.acked && tomb.id < s.lowestOpen {`,
		`if s.ttl == 0 {`,
		". TestLateCopiesOfAnsweredClaims",
	},
	{
		"every claim that was refused at once is remembered for a TTL", "table/requests.go",
		`t.tomb(c).acked = true // by this answer`,
		`_ = t.tomb(c).acked`,
		". TestLateCopiesOfAnsweredClaims",
	},
	{
		"an end that its session may not know is forgotten at once", "table/endings.go",
		`if tomb.acked && tomb.id < below {`,
		`if tomb.id < below {`,
		"internal/model TestCompare",
	},
	{
		"a claim that is out is taken for answered", "lowestopen.go",
		`return !cl.answered || cl.resend`,
		`return false`,
		". TestRequestInFlightStaysOpen",
	},
	{
		"a claim that is sent again is taken for answered", "lowestopen.go",
		`return !cl.answered || cl.resend`,
		`return !cl.answered`,
		". TestWaitingClaimIsSentAgainAfterEngineRestart",
	},
	{
		"a freeze that is out is taken for answered", "lowestopen.go",
		`return c.freezing[id]`,
		`return false`,
		". TestRequestInFlightStaysOpen",
	},
	{
		"the acknowledgement of any lease acknowledges every end", "table/ack.go",
		`c.statedIn != 0 && c.statedIn <= lease`,
		`c.statedIn <= lease+c.statedIn`,
		"internal/model TestCompare",
	},
	{
		"any lease acknowledges the end that the answer to a claim stated", "table/ack.go",
		`if c.unackedEnd != c.stated && c.statedIn != 0 && c.statedIn`,
		`if c.unackedEnd != c.stated && c.statedIn`,
		"internal/model TestCompare",
	},
	{
		"a client keeps to itself that it heard of an end", "session.go",
		"if c.ackRenewals > 0 {\n\t\tc.renewSoon = true",
		"if c.ackRenewals > 0 {",
		". TestAcknowledgedEndIsConfirmed",
	},
	{
		"a client says that it heard what it did not", "session.go",
		`c.acked.Store(lease.Number)`,
		`c.acked.Store(lease.Number + 1)`,
		". TestUnacknowledgedEndIsUnconfirmed",
	},
	{
		"a node of a cluster votes, and acknowledges entries, before its disk has them",
		"engine/quorumlock/internal/replica/write.go",
		`	r.enqueue(w, open)
`,
		`	r.enqueue(w, open)
	for _, x := range m.GetResponses() {
		if x.GetTo() != r.config.ID {
			r.sendRaft(x)
		}
	}
`,
		"engine/quorumlock/internal/replica TestVoteIsDurable",
	},
	{
		"the leader of a cluster answers before a majority has the entry",
		"engine/quorumlock/internal/replica/leader.go",
		`		l.stamped, l.proposed = at, r.now
`,
		`		l.stamped, l.proposed = at, r.now
		scratch, _ := table.Restore(r.table.Snapshot())
		for o, q, rest, err := cutCall(batch[2:]); err == nil; o, q, rest, err = cutCall(rest) {
			if q.setting != nil {
				continue
			}
			if reply, refused := scratch.Step(&q.command); o.node == r.config.ID {
				r.answer(Answer{Call: o.call, Reply: reply, Err: refused})
			}
		}
`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a leader of a cluster that is not one any more renews leases", "engine/quorumlock/internal/replica/leader.go",
		`	case refusal.Kind == 0:
`,
		`	case refusal.Kind == 0 && q.command.Op == table.Renew && r.lead.ready && m.From == m.To:
		q.command.At = r.time()
		scratch, _ := table.Restore(r.table.Snapshot())
		reply, refused := scratch.Step(&q.command)
		r.answer(Answer{Call: m.Call, Reply: reply, Err: refused})
		fallthrough
	case refusal.Kind == 0:
`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a node of a cluster reads its own table without asking the leader",
		"engine/quorumlock/internal/replica/reads.go",
		`{ r.node.ReadIndex(r.readContext(number)) }`,
		`{
	r.resolveReads([]raft.ReadState{{Index: r.applied, RequestCtx: r.readContext(number)}})
}`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a leader of a cluster takes calls that were sent to an earlier one", "engine/quorumlock/internal/replica/leader.go",
		`r.lead.leading && m.Term == r.lead.term`,
		`r.lead.leading && m.Term <= r.lead.term`,
		"engine/quorumlock/internal/replica TestSimulationOfLateCopies",
	},
	{
		"a leader of a cluster takes a copy of a call for another call", "engine/quorumlock/internal/replica/leader.go",
		`return r.lead.arrivals.first(m)`, `return r.lead.arrivals.first(m) || m.Incarnation > 0`,
		"engine/quorumlock/internal/replica TestSimulationOfLateCopies",
	},
	{
		"leases of a cluster count by the leader's own clock", "engine/quorumlock/internal/replica/leader.go",
		`return r.lead.tableAt + (r.now - r.lead.bootAt) }`,
		`return r.now }`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a call is stamped by the clock of the node that it comes in by",
		"engine/quorumlock/internal/replica/leader.go",
		`q.request.command.At = at
`,
		`q.request.command.At = at + time.Duration(q.origin.node)*time.Second
`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a change of the voters counts before it is committed, so that two can meet",
		"engine/quorumlock/internal/replica/members.go",
		`			r.lead.changing, err = true, nil
`,
		`			r.conf, err = r.node.ApplyConfChange(change), nil
`,
		"engine/quorumlock/internal/replica TestChangesOfTheConfiguration",
	},
	{
		"a node of a cluster forgets its vote when it restarts", "engine/quorumlock/internal/replica/write.go",
		`Vote: new(state.HardState.GetVote())`,
		`Vote: new(uint64(0))`,
		"engine/quorumlock/internal/replica TestVoteIsDurable",
	},
	{
		"a node that installs a snapshot keeps its old table", "engine/quorumlock/internal/replica/snapshot.go",
		`	r.replicated, r.applied = state, s.`,
		`	_, r.applied = state, s.`,
		"engine/quorumlock/internal/replica TestSimulation",
	},
	{
		"a process of a cluster takes the answer to a call of the process before",
		"engine/quorumlock/internal/replica/apply.go",
		` && o.incarnation == r.config.Incarnation
		if !mine {`,
		`
		if !mine {`,
		"engine/quorumlock/internal/replica TestAnswerGoesToTheProcess",
	},
	{
		"a snapshot for a node that was just added does not have it", "engine/quorumlock/internal/replica/snapshot.go",
		`	if err != nil || last.GetMetadata().GetIndex() == r.applied {`,
		`	if err == nil || last.GetMetadata().GetIndex() == r.applied {`,
		"engine/quorumlock/internal/replica TestAddedNodeGetsASnapshot",
	},
	{
		"the only voter of a cluster reads before it knows what it has answered",
		"engine/quorumlock/internal/replica/reads.go",
		` && (r.lead.ready || !r.lead.leading) {`,
		` {`,
		"engine/quorumlock/internal/replica TestReadOfTheOnlyVoter",
	},
	{
		"a node of a cluster makes calls that were cancelled", "engine/quorumlock/internal/replica/leader.go",
		`		if q.origin.node == r.config.ID && r.calls.pending[q.origin.call] == nil {`,
		`		if false {`,
		"engine/quorumlock/internal/replica TestCancelledCallIsNotMade",
	},
	{
		"a node of a cluster takes proposals of others", "engine/quorumlock/internal/replica/message.go",
		`		return errors.New("no node may send that: a proposal is the leader's own")`,
		`		return nil`,
		"engine/quorumlock/internal/replica TestMessagesThatNoNodeSends",
	},
	{
		"a node of a cluster with another table than the leader's goes on",
		"engine/quorumlock/internal/replica/apply.go",
		`		return r.hashes.compare(index, sum)`,
		`		return r.hashes.compare(index+1, sum)`,
		"engine/quorumlock/internal/replica TestNodeWithAnotherTable",
	},
	{
		"the learners of a cluster vote at once", "engine/quorumlock/internal/replica/members.go",
		`change.Type = pb.ConfChangeAddLearnerNode.Enum()`,
		`change.Type = pb.ConfChangeAddNode.Enum()`,
		"engine/quorumlock/internal/replica TestNodeAndItsSetting",
	},
	{
		"a setting of a cluster changes though it has another revision", "engine/quorumlock/internal/replica/settings.go",
		`		if before.Revision != s.Revision {`,
		`		if false {`,
		"engine/quorumlock/internal/replica TestSettingChangesBy",
	},
	{
		"a late copy of a put makes a setting that was removed", "engine/quorumlock/internal/replica/settings.go",
		`		ss.removed = ss.last
`,
		`		ss.removed = 0
`,
		"engine/quorumlock/internal/replica TestLateCopyOfAPut",
	},
	{
		"a node joins a cluster though its setting has changed meanwhile", "engine/quorumlock/internal/replica/apply.go",
		`	if r.refuseConfChange(c, with) != nil {`,
		`	if false {`,
		"engine/quorumlock/internal/replica TestNodeIsNotAdded",
	},
	{
		"the rules of a cluster rise when the first node has them", "engine/quorumlock/internal/replica/rules.go",
		`	return slices.Min(versions)`,
		`	return slices.Max(versions)`,
		"engine/quorumlock/internal/replica TestRollingUpgrade",
	},
	{
		"the rules of a cluster rise before its learners have them", "engine/quorumlock/internal/replica/rules.go",
		`slices.Concat(r.conf.GetVoters(), r.conf.GetLearners())`,
		`r.conf.GetVoters()`,
		"engine/quorumlock/internal/replica TestRulesRiseOnly",
	},
	{
		"a node of a cluster steps under the latest rules that it has", "engine/quorumlock/internal/replica/apply.go",
		`r.config.Rules.Step(r.rules,`,
		`r.config.Rules.Step(r.config.Rules.Latest,`,
		"engine/quorumlock/internal/replica TestRollingUpgrade",
	},
	{
		"a node whose program lacks the rules of the log goes on", "engine/quorumlock/internal/replica/snapshot.go",
		`	if err = r.config.Rules.check(state.rules); err != nil {`,
		`	if err = r.config.Rules.check(state.rules); false {`,
		"engine/quorumlock/internal/replica TestNodeWithoutTheRules",
	},
	{
		"a leader of a cluster decides by a policy that the log has replaced", "engine/quorumlock/internal/replica/leader.go",
		`!l.blocked && !l.settling && !r`,
		`!l.blocked && !r`,
		"engine/quorumlock/internal/replica TestPolicyCountsFromItsEntryOn",
	},
	{
		"a leader of a cluster proposes on while the voters change", "engine/quorumlock/internal/replica/leader.go",
		`!l.settling && !r.changing() && l`,
		`!l.settling && l`,
		"engine/quorumlock/internal/replica TestOnlyVoterThatLostThatItIsOneLeadsAgain",
	},
	{
		"claims on their way count for no quota of a cluster", "engine/quorumlock/internal/rights/usage.go",
		`	i.session(ref.Session).coming++
	i.add(1, more)
`,
		`	i.session(ref.Session).coming++
`,
		"engine/quorumlock/internal/rights TestQuotasCount",
	},
	{
		"a caller of a cluster uses the sessions of another identity", "engine/quorumlock/internal/rights/rights.go",
		`		return r.Session(c.Key.Session)
`,
		`		return nil
`,
		"engine/quorumlock/internal/rights TestRights",
	},
}
