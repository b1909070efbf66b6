package replica

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"
)

const usualSync = 20 * time.Millisecond // at most

// A disk keeps writes in order. A write is durable when it is synced. Power loss takes writes that
// are not durable: some last ones of them, or none.
type disk struct {
	*machine
	state    State
	unsynced []Write
	syncing  bool
	slowest  time.Duration // of a sync
	full     bool          // syncs do not end
	lies     bool          // it says that writes are durable before they are (a planted bug)
}

func (s *State) clone() State {
	c := State{Entries: slices.Clone(s.Entries)} // entries do not change
	if s.HardState != nil {
		c.HardState = proto.Clone(s.HardState).(*pb.HardState)
	}
	if s.Snapshot != nil {
		c.Snapshot = proto.Clone(s.Snapshot).(*pb.Snapshot)
	}
	return c
}

// apply makes w part of what the disk has.
func (s *State) apply(w *Write) {
	if w.HardState != nil {
		s.HardState = w.HardState
	}
	if w.Snapshot != nil {
		index := w.Snapshot.GetMetadata().GetIndex()
		s.Snapshot = w.Snapshot
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *pb.Entry) bool {
			return w.Install || e.GetIndex() <= index
		})
	}
	if len(w.Entries) > 0 {
		first := w.Entries[0].GetIndex()
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *pb.Entry) bool { return e.GetIndex() >= first })
		s.Entries = append(s.Entries, w.Entries...)
	}
}

func (d *disk) reset(s State) {
	d.state, d.unsynced, d.syncing, d.full = s, nil, false, false
}

func (d *disk) write(w Write) {
	d.unsynced = append(d.unsynced, w)
	if w.Install {
		d.saw("snapshot installed")
	}
	statesHash := func(e *pb.Entry) bool { return bytes.HasPrefix(e.GetData(), newEntry(entryHash)) }
	if slices.ContainsFunc(w.Entries, statesHash) {
		d.saw("hash stated")
	}
	if d.lies {
		d.input(0, func(r *Replica) { r.Persisted(d.clock.read(), w.Number) })
	}
	d.sync()
}

// sync makes all writes so far durable, after some time. One sync runs at a time.
func (d *disk) sync() {
	if d.syncing || len(d.unsynced) == 0 {
		return
	}
	d.syncing = true
	life, last := d.life, d.unsynced[len(d.unsynced)-1].Number
	var done func()
	done = func() {
		if d.life != life {
			return
		}
		if d.full {
			d.after(50*time.Millisecond, done)
			return
		}
		d.keep(last)
		d.syncing = false
		d.input(0, func(r *Replica) { r.Persisted(d.clock.read(), last) })
		d.sync()
	}
	took := d.between(0, d.slowest)
	if d.lies {
		took *= 100
	}
	d.after(took, done)
}

// keep makes the writes up to number durable.
func (d *disk) keep(number uint64) {
	for len(d.unsynced) > 0 && d.unsynced[0].Number <= number {
		d.state.apply(&d.unsynced[0])
		d.unsynced = d.unsynced[1:]
	}
}

// crash ends the process that writes. Without power loss, the kernel still has what was written.
func (d *disk) crash(power bool) {
	kept := len(d.unsynced)
	if power {
		kept = d.random.IntN(kept + 1)
		if kept < len(d.unsynced) {
			d.saw("writes lost")
		}
	}
	for i := range kept {
		d.state.apply(&d.unsynced[i])
	}
	d.unsynced, d.syncing = nil, false
}
