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

// A schedule in which a holder's renewal at server 0 falls between the reading of the ends and the
// return of server 2: without the barrier, or without the time out, two parties hold.
func TestModelFindsPlantedBugs(t *testing.T) {
	for _, b := range []bug{none, noBarrier, noWait} {
		m := returnDuringRenewal(b)
		if (m.bad != "") != (b != none) {
			t.Errorf("bug %q: violation %q\n%s", b, m.bad, strings.Join(m.story, "\n"))
		}
	}
	seed := testmode.Seed(t)
	for k := range uint64(testmode.Pick(2000, 20_000)) {
		if runModel(seed+k, noFloor, 3, 1500).bad != "" {
			return
		}
	}
	t.Errorf("not found: %s", noFloor)
}

func returnDuringRenewal(b bug) *model {
	m := newModel(1, b, 3, 2)
	settle := func(p int) {
		for range 6 {
			m.observeAll(p)
			for len(m.parties[p].steps) > 0 {
				m.apply(p)
			}
		}
	}
	settle(0)
	settle(1)
	m.request(0, 0) // server 0 promises until 10
	m.now += 5
	m.request(0, 2) // server 2 promises until 15
	m.stamp(0, 0)
	m.stamp(0, 2)
	m.check()
	m.servers[2].image = image{} // and loses its data
	m.now++
	settle(1) // reads at server 0 that its promise lasts 4 ticks more
	if b != noWait {
		m.request(0, 0) // a holder that did not notice the loss would have it raised
		m.now += 4
	}
	m.now++
	settle(1)
	for range 2 {
		m.request(1, 1)
		m.request(1, 2)
		m.stamp(1, 1)
		m.stamp(1, 2)
	}
	m.check()
	return m
}
