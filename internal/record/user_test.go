package record

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A user makes commands of few sessions at random.
type user struct {
	*rand.Rand
	epochs map[string]uint64
	last   map[string]uint64
}

func (u *user) command(now time.Duration) table.Command {
	id := fmt.Sprint("s", 1+u.IntN(5))
	c := table.Command{At: now + time.Duration(u.IntN(150))*time.Millisecond, Key: lockkeeper.Key{
		Session:    id,
		Epoch:      u.epochs[id],
		LowestOpen: u.last[id] - min(u.last[id], u.Uint64N(9)),
		Acked:      u.Uint64N(9),
	}}
	ref := lockkeeper.Ref{Session: fmt.Sprint("s", 1+u.IntN(5)), ID: u.last[id] - min(u.last[id], u.Uint64N(4))}
	switch p := u.IntN(200); {
	case p < 8 || c.Key.Epoch == 0:
		c.Op = table.Attach
		c.Session = lockkeeper.Session{
			ID:    id,
			TTL:   time.Duration(2+u.IntN(20)) * time.Second,
			Epoch: c.Key.Epoch,
			Label: lockkeeper.Label{As: "golden"},
		}
		for n := u.last[id]; n > 0 && n+4 > u.last[id]; n-- {
			c.Session.Named = append(c.Session.Named, n)
		}
	case p < 25:
		c.Op = table.Renew
	case p < 26:
		c.Op = table.Restart
	case p < 28:
		c.Op = table.Gone
	case p < 80:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Release,
			ID: u.last[id] - min(u.last[id], u.Uint64N(5))}
	case p < 95:
		c.Op, c.Ending = table.End, lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   ref,
			Force: u.IntN(2) == 0,
			Label: lockkeeper.Label{Note: `"why"`},
		}
	case p < 105:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db/a"}
	case p < 107:
		c.Op, c.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Leave}
	default:
		u.last[id]++
		c.Op, c.Want = table.Claim, u.want(u.last[id], ref)
	}
	return c
}

func (u *user) want(id uint64, other lockkeeper.Ref) lockkeeper.Want {
	w := lockkeeper.Want{
		ID:       id,
		Priority: u.IntN(4) - 1,
		Wait:     []time.Duration{0, 3 * time.Second, lockkeeper.Forever}[u.IntN(3)],
		Label:    lockkeeper.Label{Note: "grüße"},
	}
	for _, path := range []lockkeeper.Path{"db", "db/a", "db/b", "x"} {
		if u.IntN(3) != 0 {
			continue
		}
		target := lockkeeper.Target{Path: path, Mode: lockkeeper.Mode(1 + u.IntN(3))}
		if target.Mode == lockkeeper.ModePermits {
			target.Limit = 1 + u.IntN(4)
			target.Units = 1 + u.IntN(target.Limit)
		}
		w.Targets = append(w.Targets, target)
	}
	switch u.IntN(10) {
	case 0:
		w.WriterPolicy, w.Quiet = lockkeeper.Soft, time.Second
	case 1, 2:
		w.Steal = lockkeeper.Ask
	case 3:
		w.Steal, w.After = lockkeeper.Take, 2*time.Second
		if u.IntN(2) == 0 {
			w.After, w.AfterTTL = 0, 333
		}
	case 4:
		w.MaxHold, w.Grace = 3*time.Second, time.Second
	case 5:
		w.Expected = 4 * time.Second
	case 6:
		w.Inside = other
	case 7:
		w = lockkeeper.Want{
			ID:      id,
			Freeze:  5 * time.Second,
			Targets: []lockkeeper.Target{{Path: "db/a", Mode: lockkeeper.ModeExclusive}},
		}
	case 8:
		w.Revision, w.ID = 1, max(1, id-1)
		w.Targets = []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}}
	}
	return w
}
