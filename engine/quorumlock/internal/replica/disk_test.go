package replica

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"
)

const usualSync = 20 * time.Millisecond // at most

// A disk keeps writes in order. A write is durable when it is synced. The end of the process takes
// writes that are not durable: some last ones of them, or none, also a part of what one sync was about
// to make durable.
type disk struct {
	*machine
	state    State
	unsynced []Write
	syncing  bool
	slowest  time.Duration // of a sync
	full     bool          // syncs do not end
	lies     bool          // it says that writes are durable before they are (a planted bug)
	backing  Backing       // has the same as state; nil if there is none
}

// A Backing is a product's disk, which a simulation runs beside its own.
type Backing interface {
	Write(writes []Write) error
	// Restart ends the process that has the disk, and returns what the next one finds.
	Restart() (State, error)
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

// equal reports whether both mean the same.
func (s *State) equal(other *State) bool {
	a, b := s.HardState, other.HardState
	return a.GetTerm() == b.GetTerm() && a.GetVote() == b.GetVote() && a.GetCommit() == b.GetCommit() &&
		proto.Equal(s.Snapshot.GetMetadata(), other.Snapshot.GetMetadata()) &&
		bytes.Equal(s.Snapshot.GetData(), other.Snapshot.GetData()) &&
		slices.EqualFunc(s.Entries, other.Entries, func(a, b *pb.Entry) bool {
			return a.GetIndex() == b.GetIndex() && a.GetTerm() == b.GetTerm() && a.GetType() == b.GetType() &&
				bytes.Equal(a.GetData(), b.GetData())
		})
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
	if d.profile.backing != nil {
		d.backing = d.profile.backing(d.T, d.state.clone())
	}
}

// read returns what a process finds that starts.
func (d *disk) read() State {
	if d.backing == nil {
		return d.state.clone()
	}
	s, err := d.backing.Restart()
	if err != nil {
		d.faultf("the disk of %s: %v", d.name, err)
		return d.state.clone()
	}
	if !s.equal(&d.state) {
		d.faultf("the disk of %s has %v, want %v", d.name, s, d.state)
	}
	return s
}

// take makes the oldest n unsynced writes part of what the disk has.
func (d *disk) take(n int) {
	for i := range n {
		d.state.apply(&d.unsynced[i])
	}
	if d.backing != nil {
		if err := d.backing.Write(d.unsynced[:n]); err != nil {
			d.faultf("the disk of %s: %v", d.name, err)
		}
	}
	d.unsynced = d.unsynced[n:]
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
	n := 0
	for n < len(d.unsynced) && d.unsynced[n].Number <= number {
		n++
	}
	d.take(n)
}

// crash ends the process that writes.
func (d *disk) crash() {
	kept := d.random.IntN(len(d.unsynced) + 1)
	switch {
	case kept == len(d.unsynced):
	case kept == 0:
		d.saw("writes lost")
	default:
		d.saw("batch torn")
	}
	d.take(kept)
	d.unsynced, d.syncing = nil, false
}
