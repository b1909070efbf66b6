package membership

import (
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// runModel runs a schedule, and returns the violation; "" if there is none.
func runModel(seed uint64, b bug, servers, steps int) *model {
	m := newModel(seed, b, servers, 3)
	for range steps {
		if m.step(); m.bad != "" {
			break
		}
	}
	return m
}

func TestModelHasNoTwoHolders(t *testing.T) {
	seed := testmode.Seed(t)
	grants, joins := 0, 0
	for k := range uint64(testmode.Pick(600, 60_000)) {
		m := runModel(seed+k, none, []int{3, 3, 5}[k%3], 1500)
		if m.bad != "" {
			t.Fatalf("seed %d, schedule %d: %s\n%s", seed, k, m.bad, strings.Join(m.story, "\n"))
		}
		grants, joins = grants+m.grants, joins+m.joins
	}
	if grants == 0 || joins == 0 {
		t.Errorf("%d grants and %d returns of servers: the schedules show nothing", grants, joins)
	}
	t.Logf("%d grants, %d returns of servers", grants, joins)
}

// Directed schedules have two holders, or a fence that falls, with a bug, and neither without.
func TestModelFindsPlantedBugs(t *testing.T) {
	for _, schedule := range []struct {
		run  func(bug) *model
		bugs []bug
	}{
		{returnDuringRenewal, []bug{noBarrier, noWait}},
		{lossOfTheFloor, []bug{noFloor, oneSource}},
		{lossOfTheFloorWhileOneIsSlow, []bug{minority}},
		{restartWithOldData, []bug{trusting}},
	} {
		for _, b := range append(schedule.bugs, none) {
			m := schedule.run(b)
			if (m.bad != "") != (b != none) {
				t.Errorf("bug %q: violation %q\n%s", b, m.bad, strings.Join(m.story, "\n"))
			}
		}
	}
}

// settle lets a party do all that it plans.
func (m *model) settle(p int) { m.settleExcept(p, -1) }

// settleExcept lets a party do all that it plans. Requests to change the record of one server are lost.
func (m *model) settleExcept(p, lost int) {
	for range 6 {
		m.observeAll(p)
		for party := m.parties[p]; len(party.steps) > 0; {
			if party.steps[0].Server == lost {
				party.steps = party.steps[1:]
				continue
			}
			m.apply(p)
		}
	}
}

// take has a party ask servers for their votes until it holds, if they give them.
func (m *model) take(p int, servers ...int) {
	for range 2 {
		for _, i := range servers {
			m.request(p, i)
			m.stamp(p, i)
		}
	}
	m.check()
}

// A holder's renewal at server 0 falls between the reading of the ends and the return of server 2.
func returnDuringRenewal(b bug) *model {
	m := newModel(1, b, 3, 2)
	m.settle(0)
	m.settle(1)
	m.request(0, 0) // server 0 promises until 10
	m.now += 5
	m.request(0, 2) // server 2 promises until 15
	m.stamp(0, 0)
	m.stamp(0, 2)
	m.check()
	m.servers[2].image = image{} // and loses its data
	m.now++
	m.settle(1) // reads at server 0 that its promise lasts 4 ticks more
	if b != noWait {
		m.request(0, 0) // a holder that did not notice the loss would have it raised
		m.now += 4
	}
	m.now++
	m.settle(1)
	m.take(1, 1, 2)
	return m
}

// Servers 0 and 2 have granted several fences, of which server 1 knows nothing. Then server 2 loses its
// data and returns, and server 0 is silent.
func lossOfTheFloor(b bug) *model { return lossOfTheFloorWith(b, -1) }

// The same, but server 0 only answers what it is asked, and gets no request to change its record. So
// the only member that knows of the loss is the one that knows nothing of the fences.
func lossOfTheFloorWhileOneIsSlow(b bug) *model {
	return lossOfTheFloorWith(b, 0)
}

func lossOfTheFloorWith(b bug, slow int) *model {
	m := newModel(1, b, 3, 2)
	m.settle(0)
	m.settle(1)
	for range 3 {
		m.take(0, 0, 2)
		m.now += modelTTL + 1
		m.parties[0].fence, m.parties[0].votes = 0, make([]int64, 3)
	}
	m.servers[2].image = image{}
	m.settleExcept(1, slow)
	m.now += modelTTL + 1
	m.settleExcept(1, slow)
	m.take(1, 1, 2)
	return m
}

// Server 2 is durable. Its operator restarts it with other settings, so it begins with old data.
func restartWithOldData(b bug) *model {
	m := newModel(1, b, 3, 2)
	s := m.servers[2]
	s.syncs = true
	m.settle(0)
	m.settle(1)
	old := s.image
	m.take(0, 1, 2)
	s.image, s.syncs, s.run = old, false, s.run+1000
	m.settle(1)
	m.take(1, 0, 2)
	return m
}
