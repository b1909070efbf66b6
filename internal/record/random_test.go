package record

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// maker makes random values; some are zero, and some are extreme.
type maker struct{ *rand.Rand }

var texts = []string{"", "", "db", "a b", `say "hi"`, "tab\tand\nline", "grüße", "\xff\xfe", strings.Repeat("x", 500)}

func (m maker) text() string { return texts[m.IntN(len(texts))] }

func (m maker) number() uint64 {
	return []uint64{0, 1, 127, 128, m.Uint64N(1 << 20), m.Uint64()}[m.IntN(6)]
}

func (m maker) duration() time.Duration {
	return []time.Duration{0, -1, 1, time.Second, lockkeeper.MaxDuration, lockkeeper.Forever,
		-lockkeeper.Forever - 1}[m.IntN(7)]
}

func (m maker) bool() bool { return m.IntN(2) == 0 }

func (m maker) ref() lockkeeper.Ref { return lockkeeper.Ref{Session: m.text(), ID: m.number()} }

func (m maker) label() lockkeeper.Label {
	return lockkeeper.Label{As: m.text(), Note: m.text(), Link: m.text()}
}

func (m maker) lapse() lockkeeper.Lapse {
	return lockkeeper.Lapse{ID: m.number(), Reason: m.reason(), EndsAt: m.duration()}
}

func (m maker) reason() lockkeeper.Reason {
	return lockkeeper.Reason(m.IntN(int(lockkeeper.Quota) + 1))
}

func (m maker) target() lockkeeper.Target {
	return lockkeeper.Target{
		Path: lockkeeper.Path(m.text()), Mode: lockkeeper.Mode(m.IntN(4)), Units: m.IntN(3), Limit: m.IntN(1 << 30),
	}
}

// command has only fields that its op uses.
func (m maker) command() table.Command {
	c := table.Command{At: m.duration(), Op: table.Op(m.IntN(int(table.Review) + 1))}
	key := lockkeeper.Key{Session: m.text(), Epoch: m.number(), LowestOpen: m.number(), Acked: m.number()}
	switch c.Op {
	case table.Attach:
		c.Session = lockkeeper.Session{
			ID: m.text(), TTL: m.duration(), Epoch: m.number(), Outlive: m.bool(), Label: m.label(),
		}
		for range m.IntN(4) {
			c.Session.Named = append(c.Session.Named, m.number())
		}
		for range m.IntN(3) {
			c.Session.Lapsed = append(c.Session.Lapsed, m.lapse())
		}
	case table.Pass, table.Renew, table.Gone:
		c.Key = key
	case table.Claim:
		c.Key, c.Want = key, m.want()
	case table.End:
		c.Key, c.Ending = key, m.ending()
	}
	return c
}

// commands are those of a batch; some have the key of the one before, or nearly.
func (m maker) commands() []table.Command {
	all := []table.Command{m.command()}
	for range m.IntN(4) {
		c := m.command()
		if c.Key.Session != "" && m.bool() {
			c.Key = all[len(all)-1].Key
			switch m.IntN(4) {
			case 0:
				c.Key.Epoch++
			case 1:
				c.Key.LowestOpen = m.number()
			}
		}
		all = append(all, c)
	}
	return all
}

func (m maker) ending() lockkeeper.Ending {
	e := lockkeeper.Ending{Kind: lockkeeper.EndingKind(1 + m.IntN(int(lockkeeper.Lapsed)))}
	switch e.Kind {
	case lockkeeper.Release:
		e.ID = m.number()
	case lockkeeper.Revoke:
		e.Ref, e.Force, e.Label = m.ref(), m.bool(), m.label()
	case lockkeeper.Thaw:
		e.Path = lockkeeper.Path(m.text())
	case lockkeeper.Lapsed:
		e.Lapse = m.lapse()
	}
	return e
}

func (m maker) want() lockkeeper.Want {
	w := lockkeeper.Want{
		ID:           m.number(),
		Revision:     m.number(),
		Inside:       m.ref(),
		Priority:     m.IntN(9) - 4,
		Wait:         m.duration(),
		WriterPolicy: lockkeeper.WriterPolicy(m.IntN(2)),
		Quiet:        m.duration(),
		Steal:        lockkeeper.Steal(m.IntN(3)),
		After:        m.duration(),
		AfterTTL:     m.IntN(1001),
		MaxHold:      m.duration(),
		Grace:        m.duration(),
		Expected:     m.duration(),
		Freeze:       m.duration(),
		Label:        m.label(),
	}
	for range m.IntN(4) {
		w.Targets = append(w.Targets, m.target())
	}
	return w
}

// snapshot has one record of each kind.
func (m maker) snapshot() table.Snapshot {
	claim := table.ClaimRecord{
		Ref: m.ref(), Want: m.want(), State: lockkeeper.State(m.IntN(5)), Converting: m.bool(),
		Ticket: m.number(), Fence: m.number(), Change: m.number(), Changed: m.duration(), Arrived: m.duration(),
		Granted: m.duration(), Bound: m.duration(), Quiet: m.duration(), StatedEnd: m.duration(), StatedIn: m.number(),
		UnackedEnd: m.duration(), Unconfirmed: m.bool(), Overdue: m.bool(), Reason: m.reason(), Text: m.text(),
		Thawed: m.bool(), Acked: m.bool(), Ended: m.duration(), Forget: m.duration(), UnackedUntil: m.duration(),
	}
	if m.bool() {
		claim.Grants = []lockkeeper.Grant{{Target: m.target(), InUse: m.IntN(9), Slot: m.IntN(9)}}
		claim.Asks = []table.AskRecord{{By: m.ref(), End: m.duration()}, {}}
	}
	if m.bool() {
		claim.Operator = &table.OperatorRecord{Label: m.label(), End: m.duration()}
		claim.Lapse = &table.LapseRecord{End: m.duration(), Reason: m.reason(), Text: m.text()}
	}
	return table.Snapshot{
		Counters: table.Counters{
			Now: m.duration(), Fences: m.number(), Tickets: m.number(), Epochs: m.number(), Changes: m.number(),
		},
		Sessions: []table.SessionRecord{{
			ID: m.text(), Label: m.label(), TTL: m.duration(), Epoch: m.number(), Deadline: m.duration(),
			Promise: m.duration(), Resumed: m.bool(), Leases: m.number(), Acked: m.number(), LowestOpen: m.number(),
			Closed: m.bool(),
		}},
		Claims: []table.ClaimRecord{claim},
		Freezes: []table.FreezeRecord{{
			Path: lockkeeper.Path(m.text()), By: m.ref(), Label: m.label(), Since: m.duration(), Until: m.duration(),
			Ended: m.bool(),
		}},
		HoldTimes: []table.HoldTimeRecord{{
			Path: lockkeeper.Path(m.text()), Estimate: m.duration(), At: m.duration(), Forgotten: m.bool(),
		}},
	}
}
