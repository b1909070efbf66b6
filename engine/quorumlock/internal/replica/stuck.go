package replica

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// A disk is stuck if writes are under way, and none has ended for
//
//	patience = 2 * ElectionTicks * (1 + bytes of these writes / patientBytes)
//
// ticks. Ticks do not pass while the process stands still, so a pause is no stuck disk. With ticks of 100 ms and
// elections after 10 of them, a large write may have 5 MB/s.
//
// A node with a stuck disk applies nothing that comes. It must not lead: a majority could commit what it
// proposes, and it would answer no call. So it does not want to lead, and its owner lets another node lead.
const patientBytes = 10 << 20

// Stuck returns for how long no write has ended, 0 if none is under way, and whether the disk is stuck.
func (r *Replica) Stuck() (since time.Duration, stuck bool) {
	if len(r.writes.open) == 0 {
		return 0, false
	}
	size := 0
	for i := range r.writes.open {
		size += r.writes.open[i].size
	}
	patience := uint64(2*r.config.ElectionTicks) * uint64(patientBytes+size) / patientBytes
	return r.now - r.writes.ended.at, r.ticks-r.writes.ended.ticks >= patience
}

// tickRaft lets time pass for raft, unless that could make this node campaign though its disk is stuck.
func (r *Replica) tickRaft() {
	if _, stuck := r.Stuck(); stuck && !r.lead.leading {
		return
	}
	r.protect(r.node.Tick)
}

// A match is how much of the leader's log a node has.
type match struct {
	index uint64
	ticks uint64 // when the leader noticed it
}

// noteMatches notes how much of the log each node has, at a tick of the leader.
func (r *Replica) noteMatches() {
	if !r.lead.leading {
		return
	}
	r.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if seen, known := r.lead.matches[id]; !known || seen.index != p.Match {
			r.lead.matches[id] = match{p.Match, r.ticks}
		}
	})
}

// keepsUp reports whether a node stores what the leader sends: it has the whole log now, or has stored a part of it
// within two election timeouts. A node whose disk is stuck does neither once there is a new entry, though it
// answers heartbeats.
func (r *Replica) keepsUp(id, index uint64) bool {
	if index >= r.lastIndex() {
		return true
	}
	seen, known := r.lead.matches[id]
	return known && (seen.index != index || r.ticks-seen.ticks < uint64(2*r.config.ElectionTicks))
}

// lastIndex returns the index of the last entry that this node has, durable or not.
func (r *Replica) lastIndex() uint64 {
	for i := len(r.writes.open) - 1; i >= 0; i-- {
		if m := r.writes.open[i].append; m != nil && len(m.GetEntries()) > 0 {
			return m.GetEntries()[len(m.GetEntries())-1].GetIndex()
		}
	}
	last, err := r.storage.LastIndex()
	if err != nil {
		return 0
	}
	return last
}
