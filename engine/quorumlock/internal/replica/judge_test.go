package replica

import (
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/table"
)

// A judge sees everything in a world. It holds the tables of all machines against each other after
// each command, and checks them by themselves.
type judge struct {
	*world
	log     map[step]logged
	fences  map[uint64]lockkeeper.Ref
	last    uint64              // the highest fence
	leaders map[uint64]*machine // by term
	changes uint64              // the highest change that a client knows
	steps   int
	faults  []string
	stops   map[*machine]error
	puts    puts

	raisedWith []uint64 // the members when the rules rose
}

// A step is the k-th command of an entry.
type step struct {
	index uint64
	k     int
}

// logged is what a step did at the machine that applied it first.
type logged struct {
	at      table.Counters
	command table.Op
	by      string
}

func newJudge(w *world) judge {
	return judge{world: w, log: make(map[step]logged), fences: make(map[uint64]lockkeeper.Ref),
		leaders: make(map[uint64]*machine), stops: make(map[*machine]error), puts: newPuts()}
}

// applied checks a command that a machine applied.
func (j *judge) applied(m *machine, index uint64, t *table.Table, c *table.Command) {
	j.checkGuest(m, index, c)
	if index != m.index {
		m.index, m.within = index, 0
	}
	if m.within++; m.within == 2 {
		j.saw("batch with several calls")
	}
	at := step{index, m.within}
	mine := logged{at: t.Counters(), command: c.Op, by: m.name}
	if first, known := j.log[at]; known {
		if first.at != mine.at || first.command != mine.command {
			j.faultf("entry %d, command %d: %s made %v of a %s, %s made %v of a %s", index, m.within, first.by, first.at,
				first.command, mine.by, mine.at, mine.command)
		}
		return
	}
	j.log[at] = mine
	j.steps++
	j.checkGrants(t)
	if j.steps%20 == 0 {
		if err := t.Check(); err != nil {
			j.faultf("%s, entry %d: %v", m.name, index, err)
		}
	}
}

// checkGrants checks that fences rise (P1). The first machine that applies a step is asked.
func (j *judge) checkGrants(t *table.Table) {
	for _, e := range t.Events() {
		if e.Kind != table.Granted {
			continue
		}
		if before, twice := j.fences[e.Fence]; twice || e.Fence <= j.last {
			j.faultf("fence %d of %v after fence %d; it was %v's", e.Fence, e.Ref, j.last, before)
		}
		j.fences[e.Fence], j.last = e.Ref, max(j.last, e.Fence)
	}
}

// leads checks that a term has one leader.
func (j *judge) leads(m *machine, term uint64) {
	other := j.leaders[term]
	if other == m {
		return
	}
	if other != nil {
		j.faultf("%s and %s both lead in term %d", m.name, other.name, term)
	}
	j.saw("leader changed")
	j.tracef("%s leads in term %d", m.name, term)
	j.leaders[term] = m
}

// answered notes what a client knows.
func (j *judge) answered(a Answer) { j.changes = max(j.changes, a.Reply.Status.Change) }

// read checks that a read sees what was answered before it began.
func (j *judge) read(m *machine, began uint64, err error) {
	if err != nil {
		j.saw("read: " + cause(err))
		return
	}
	j.saw("read")
	if has := m.replica.Table().Counters().Changes; has < began {
		j.faultf("stale read: %s reads change %d, change %d was answered before", m.name, has, began)
	}
}

// stopped notes that a machine found damage.
func (j *judge) stopped(m *machine, err error) {
	if !errors.Is(err, errDiskFull) && !j.mayLackRules(m, err) && (j.stops[m] == nil || !errors.Is(err, ErrStopped)) {
		j.faultf("%s stops: %v", m.name, err)
	}
	j.stops[m] = err
}

// verdict returns what is wrong, of the tables or else of the history.
func (j *judge) verdict() []string {
	faults := j.faults
	if !j.profile.badClocks && len(faults) == 0 {
		rules := history.RulesOf(lockkeeper.Guarantees{
			Features: lockkeeper.TableFeatures, FenceScope: lockkeeper.FencesOverAll,
		})
		rules.Running, rules.Forced = true, j.profile.steals
		faults = history.Judge(j.recorder.Events(), rules)
	}
	return faults
}

// settled checks the end of a quiet time: all members have one table, and every client was served.
func (j *judge) settled() {
	var best *machine
	for _, m := range j.machines {
		if m.replica != nil && m.replica.Status().Ready {
			best = m
		}
	}
	if best == nil {
		j.faultf("nobody leads though the world is whole")
		return
	}
	j.settledPuts()
	status := best.replica.Status()
	if j.profile.program.Latest == earlierRules.Latest && status.Rules != laterRules.Latest {
		j.faultf("the cluster runs under rules %d though all machines have %d", status.Rules, laterRules.Latest)
	}
	members := slices.Concat(status.Voters, status.Learners)
	if !j.profile.learners && len(status.Voters) != min(j.profile.voters, len(j.machines)) {
		j.faultf("the voters are %v, want %d", status.Voters, j.profile.voters)
	}
	var nodes []string
	for _, id := range members {
		nodes = append(nodes, nodeKey(id))
	}
	slices.Sort(nodes)
	for i, s := range best.replica.Settings("node/") {
		if i >= len(nodes) || nodes[i] != s.Key {
			j.faultf("the members are %v, setting %d of a node is %s", nodes, i, s.Key)
		}
	}
	if n := len(best.replica.Settings("node/")); n != len(nodes) {
		j.faultf("%d settings of nodes, %d members", n, len(nodes))
	}
	for _, m := range j.machines {
		switch {
		case !slices.Contains(members, m.id):
		case m.replica == nil:
			j.faultf("%s is down though the world is whole", m.name)
		case m.replica.Status().Applied+100 < status.Applied:
			j.faultf("%s has applied %d entries, the leader %d", m.name, m.replica.Status().Applied, status.Applied)
		}
	}
	for _, c := range j.clients {
		switch {
		case c.waiting != 0 && j.now-c.waiting > j.profile.quiet:
			j.faultf("%s waits since %s", c.name, c.waiting)
		case c.waiting == 0 && c.granted == c.grantedBefore:
			j.faultf("%s has got nothing since the world is whole", c.name)
		}
	}
}
