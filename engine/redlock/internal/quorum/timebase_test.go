package quorum

import (
	"testing"
	"time"
)

// A request that is sent after another party's was answered has the higher ticket, however slow the
// one way or the other was in the exchanges that the parties measured by.
func TestLaterRequestHasTheHigherTicket(t *testing.T) {
	const way = 100 * time.Microsecond
	ways := []time.Duration{0, way, 100 * way}
	measured := func(there, back time.Duration) timebase {
		b := newTimebase(3)
		for i := range b.samples {
			b.learn(i, time.Hour, time.Hour+there+back, micros(time.Hour+there))
		}
		return b
	}
	for _, back := range ways {
		first, second := measured(way, back), measured(0, way)
		sent := 2 * time.Hour
		earlier := first.next(sent)
		if later := second.next(sent + 2*way); later <= earlier {
			t.Errorf("the first party's measurement came back in %v: ticket %d, then %d", back, earlier, later)
		}
		first, second = measured(way, way), measured(0, back)
		earlier = first.next(sent)
		if later := second.next(sent + 2*way); later <= earlier {
			t.Errorf("the second party's measurement came back in %v: ticket %d, then %d", back, earlier, later)
		}
	}
}
