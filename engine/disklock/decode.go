package disklock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// commandJSON is a command as appendCommand writes it.
type commandJSON struct {
	At       int64        `json:"at_ns"`
	Op       string       `json:"op"`
	By       string       `json:"by"`
	Epoch    uint64       `json:"epoch"`
	Answered uint64       `json:"answered"`
	Heard    uint64       `json:"heard"`
	Session  *sessionJSON `json:"session"`
	Want     *wantJSON    `json:"want"`
	End      *endJSON     `json:"end"`
}

type refJSON struct {
	Session string `json:"session"`
	ID      uint64 `json:"id"`
}

type sessionJSON struct {
	ID      string      `json:"id"`
	TTL     int64       `json:"ttl_ns"`
	Follows uint64      `json:"follows"` // the epoch that it takes over; 0: none
	Named   []uint64    `json:"named"`
	Lapsed  []lapseJSON `json:"lapsed"`
	Outlive bool        `json:"outlive"`
	lockkeeper.Label
}

type lapseJSON struct {
	ID     uint64            `json:"id"`
	Reason lockkeeper.Reason `json:"reason"`
	EndsAt time.Duration     `json:"ends_at_ns"`
}

type wantJSON struct {
	ID       uint64                  `json:"id"`
	Revision uint64                  `json:"revision"`
	Inside   refJSON                 `json:"inside"`
	Targets  []lockkeeper.Target     `json:"targets"`
	Priority int                     `json:"priority"`
	Wait     int64                   `json:"wait_ns"`
	Manners  lockkeeper.WriterPolicy `json:"manners"`
	Quiet    int64                   `json:"quiet_ns"`
	Steal    lockkeeper.Steal        `json:"steal"`
	After    int64                   `json:"after_ns"`
	MaxHold  int64                   `json:"max_hold_ns"`
	Grace    int64                   `json:"grace_ns"`
	Lasts    int64                   `json:"lasts_ns"`
	Freeze   int64                   `json:"freeze_ns"`
	lockkeeper.Label
}

type endJSON struct {
	Kind  string    `json:"kind"`
	ID    uint64    `json:"id"`
	Claim refJSON   `json:"claim"`
	Force bool      `json:"force"`
	Path  string    `json:"path"`
	Lapse lapseJSON `json:"lapse"`
	lockkeeper.Label
}

// decodeCommands reads the entries of one row, in their order. A field that it
// doesn't know is an error: a newer program may mean something by it.
func decodeCommands(entries []byte) ([]table.Command, error) {
	d := json.NewDecoder(bytes.NewReader(entries))
	d.DisallowUnknownFields()
	var read []commandJSON
	if err := d.Decode(&read); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more than one array")
	}
	commands := make([]table.Command, len(read))
	for i := range read {
		if err := read[i].command(&commands[i]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return commands, nil
}

// command fills c with what r says.
func (r *commandJSON) command(c *table.Command) error {
	op, known := opsByName[r.Op]
	if !known {
		return fmt.Errorf("op %q is unknown", r.Op)
	}
	c.At, c.Op = time.Duration(r.At), op
	if op != table.Restart && op != table.Attach {
		c.Key = lockkeeper.Key{Session: r.By, Epoch: r.Epoch, LowestOpen: r.Answered, Acked: r.Heard}
	}
	switch {
	case op == table.Attach && r.Session != nil:
		s := r.Session
		c.Session = lockkeeper.Session{
			ID:      s.ID,
			TTL:     time.Duration(s.TTL),
			Epoch:   s.Follows,
			Named:   s.Named,
			Outlive: s.Outlive,
			Label:   s.Label,
		}
		for _, l := range s.Lapsed {
			c.Session.Lapsed = append(c.Session.Lapsed, lockkeeper.Lapse(l))
		}
	case op == table.Claim && r.Want != nil:
		c.Want = r.Want.want()
	case op == table.End && r.End != nil:
		e := r.End
		kind := slices.Index(endingNames[:], e.Kind)
		if kind < int(lockkeeper.Release) {
			return fmt.Errorf("ending %q is unknown", e.Kind)
		}
		c.Ending = lockkeeper.Ending{
			Kind: lockkeeper.EndingKind(kind), ID: e.ID, Ref: lockkeeper.Ref(e.Claim),
			Path: lockkeeper.Path(e.Path), Force: e.Force,
			Lapse: lockkeeper.Lapse(e.Lapse), Label: e.Label,
		}
	case op == table.Attach || op == table.Claim || op == table.End:
		return fmt.Errorf("op %q says nothing", r.Op)
	}
	return nil
}

func (w *wantJSON) want() lockkeeper.Want {
	return lockkeeper.Want{
		ID: w.ID, Revision: w.Revision, Inside: lockkeeper.Ref(w.Inside), Targets: w.Targets, Priority: w.Priority,
		Wait:         time.Duration(w.Wait),
		WriterPolicy: w.Manners,
		Quiet:        time.Duration(w.Quiet),
		Steal:        w.Steal,
		After:        time.Duration(w.After),
		MaxHold:      time.Duration(w.MaxHold),
		Grace:        time.Duration(w.Grace),
		Expected:     time.Duration(w.Lasts),
		Freeze:       time.Duration(w.Freeze),
		Label:        w.Label,
	}
}

var opsByName = func() map[string]table.Op {
	names := make(map[string]table.Op)
	for op := table.Pass; op <= table.Restart; op++ {
		names[op.String()] = op
	}
	return names
}()
