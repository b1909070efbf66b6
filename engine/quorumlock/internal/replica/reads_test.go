package replica

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// Between locations, the answer to a read may take longer than the time after which reads ask again at first.
func TestReadsFromAnotherLocationAreAnswered(t *testing.T) {
	w := newWorld(t, profile{machines: 3, voters: 3}, testmode.Seed(t))
	w.run(10 * time.Second)
	leader := w.leader()
	w.network.far = 80 * time.Millisecond // a read of a follower takes four messages
	for _, m := range w.machines {
		for range 3 {
			began, answered := w.now, false
			m.input(0, func(r *Replica) {
				m.reads[r.Read(m.clock.read())] = func(err error) {
					answered = err == nil
				}
			})
			w.run(callTimeout)
			if !answered {
				t.Errorf("a read of %s that began at %s was not answered; %s leads", m.name, began-time.Hour, leader.name)
			}
		}
	}
}
