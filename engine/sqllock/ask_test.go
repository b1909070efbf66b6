package sqllock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A holder of another process is notified at once that it is asked to yield, even if it has held
// for a moment only: before a stealing claim that waits for less than a second has given up. The
// test uses engines of its own, so that no earlier event makes them poll. One success is enough.
func TestNewHoldIsNotifiedOfAsk(t *testing.T) {
	const tries = 3
	onEach(t, func(t *testing.T, url string) {
		openEngine(t, url) // which makes the tables
		for range tries {
			holder, thief := join(t, openEngine(t, url), "holder", cutTTL), join(t, openEngine(t, url), "thief", cutTTL)
			holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
			w := exclusive(1, 800*time.Millisecond, "a")
			w.Steal, w.Priority = lockkeeper.Ask, 1
			thief.claim(w, lockkeeper.Waiting)
			if holder.asked(thief, 1) {
				return
			}
			holder.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
			thief.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		}
		t.Errorf("in %d tries the thief had given up before the holder was asked", tries)
	})
}

// asked reports whether m is notified that its claim is asked for before the stealing claim of that
// id has ended.
func (m *member) asked(thief *member, id uint64) bool {
	m.t.Helper()
	ctx := bounded(m.t)
	for {
		m.mu.Lock()
		for _, st := range m.told[id] {
			if st.Asked != nil {
				m.mu.Unlock()
				return true
			}
		}
		m.mu.Unlock()
		thief.mu.Lock()
		for _, st := range thief.told[id] {
			if st.State == lockkeeper.Ended {
				thief.mu.Unlock()
				return false
			}
		}
		thief.mu.Unlock()
		select {
		case <-m.more:
		case <-thief.more:
		case <-ctx.Done():
			m.t.Fatal("neither is told anything")
		}
	}
}
