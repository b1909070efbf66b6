package sqllock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// byHand is a queue of claims of three processes; the test removes some of their rows.
type byHand struct {
	*testing.T
	db                    database
	holder, first, second *member
}

// Rows are removed by hand: the sessions that had them are notified, no claim waits for a removed
// row, and everything goes on.
func TestRowsRemovedByHand(t *testing.T) {
	cases := []struct {
		name       string
		statements string // with a ";" between them
		then       func(h *byHand)
	}{
		{"a waiting claim", "DELETE FROM {claims} WHERE session = 'first'", func(h *byHand) {
			h.ended(h.first)
			h.holder.release(1)
			h.second.await(1, lockkeeper.Held)
		}},
		{"the targets of a waiting claim", "DELETE FROM {targets} WHERE session = 'first'", func(h *byHand) {
			h.holder.release(1)
			h.second.await(1, lockkeeper.Held)
			h.second.release(1)
			h.first.await(1, lockkeeper.Held)
		}},
		{"a waiting claim with its targets", "DELETE FROM {claims} WHERE session = 'first'; DELETE FROM {targets} WHERE " +
			"session = 'first'", func(h *byHand) {
			h.ended(h.first)
			h.holder.release(1)
			h.second.await(1, lockkeeper.Held)
		}},
		{"a held claim", "DELETE FROM {claims} WHERE session = 'holder'", func(h *byHand) {
			h.first.await(1, lockkeeper.Held)
			if _, err := h.holder.Renew(bounded(h), h.holder.key); err != nil {
				h.Errorf("the holder is renewed: %v", err)
			}
			h.ended(h.holder)
		}},
		{"the targets of a held claim", "DELETE FROM {targets} WHERE session = 'holder'", func(h *byHand) {
			h.holder.release(1)
			h.first.await(1, lockkeeper.Held)
		}},
		{"the session of a holder", "DELETE FROM {sessions} WHERE id = 'holder'", func(h *byHand) {
			h.first.await(1, lockkeeper.Held)
			if _, err := h.holder.Renew(bounded(h), h.holder.key); !errors.Is(err, lockkeeper.ErrSession) {
				h.Errorf("the holder is renewed: %v, want %v", err, lockkeeper.ErrSession)
			}
		}},
		{"the session of a waiter", "DELETE FROM {sessions} WHERE id = 'first'", func(h *byHand) {
			h.holder.release(1)
			h.second.await(1, lockkeeper.Held)
			if _, err := h.first.Renew(bounded(h), h.first.key); !errors.Is(err, lockkeeper.ErrSession) {
				h.Errorf("the waiter is renewed: %v, want %v", err, lockkeeper.ErrSession)
			}
		}},
		{"a freeze", "DELETE FROM {freezes}", func(h *byHand) {
			h.holder.release(1)
			h.first.await(1, lockkeeper.Held)
		}},
		{"everything", "DELETE FROM {claims}; DELETE FROM {targets}; DELETE FROM {sessions}; DELETE FROM {freezes}; " +
			"DELETE FROM {wakeups}; DELETE FROM {hold_times}", func(h *byHand) {
			h.ended(h.first)
			h.ended(h.second)
			for _, m := range []*member{h.holder, h.first} {
				if _, err := m.Renew(bounded(h), m.key); !errors.Is(err, lockkeeper.ErrSession) {
					h.Errorf("%s is renewed: %v, want %v", m.key.Session, err, lockkeeper.ErrSession)
				}
			}
		}},
	}
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		for _, test := range cases {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				url := k.shared(t).Database(t)
				one, other := openEngine(t, url), openEngine(t, url)
				h := &byHand{
					T: t, db: opened(t, url), holder: join(t, one, "holder", cutTTL),
					first: join(t, other, "first", cutTTL), second: join(t, one, "second", cutTTL),
				}
				h.holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
				if strings.Contains(test.name, "freeze") {
					freeze := exclusive(2, 0, "a")
					freeze.Freeze = time.Hour
					h.holder.claim(freeze, lockkeeper.Freezing)
				}
				h.first.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
				h.second.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
				for statement := range strings.SplitSeq(test.statements, "; ") {
					h.db.mustExec(t, statement)
				}
				test.then(h)
				h.over()
			})
		}
	})
}

// ended checks that m is notified that its claim was revoked.
func (h *byHand) ended(m *member) {
	h.Helper()
	if st := m.await(1, lockkeeper.Ended); st.Reason != lockkeeper.Revoked {
		h.Errorf("%s is told that its claim ended as %s, want %s", m.key.Session, st.Reason, lockkeeper.Revoked)
	}
}

// over checks that all sessions can leave, and that their paths are free then.
func (h *byHand) over() {
	h.Helper()
	for _, m := range []*member{h.holder, h.first, h.second} {
		if err := m.End(bounded(h), m.key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil &&
			!errors.Is(err, lockkeeper.ErrSession) {
			h.Errorf("%s leaves: %v", m.key.Session, err)
		}
	}
	last := join(h, h.second.Engine, "last", cutTTL)
	last.claim(exclusive(1, 0, "a"), lockkeeper.Held)
	last.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
	if all := listed(h, h.first.Engine, lockkeeper.Query{}); len(all) > 0 {
		h.Errorf("there is still %+v", all)
	}
}
