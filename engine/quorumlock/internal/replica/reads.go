package replica

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

// reads are the reads of this node without an answer. Those that wait together share one request for
// the read index.
//
//	waiting ── asked the leader ──> asked ── index known ──> confirmed ── applied up to it ──> answered
//	   ^                             │ ^│
//	   └── leader changed ───────────┘ └┘ no answer: asks again, and takes the answer to either
type reads struct {
	waiting   []read
	asked     []readGroup
	confirmed []readGroup
	last      uint64 // number of the latest group
}

type read struct {
	id       CallID
	deadline time.Duration
}

type readGroup struct {
	number uint64
	ticks  uint64 // when it was asked last
	again  bool   // the request or its answer may be lost: it asks again
	index  uint64 // of confirmed ones
	reads  []read
}

// count returns the number of reads without an answer.
func (rs *reads) count() int {
	n := len(rs.waiting)
	for _, groups := range [][]readGroup{rs.asked, rs.confirmed} {
		for i := range groups {
			n += len(groups[i].reads)
		}
	}
	return n
}

// Read is the input of a read of this node's callers. Its one answer comes with an Output, unless it
// is cancelled.
func (r *Replica) Read(now time.Duration) CallID {
	r.begin(now)
	r.calls.last++
	id := r.calls.last
	cause := r.failed
	if cause == nil && r.reads.count() >= r.config.MaxQueued {
		cause = ErrBusy
	}
	if cause != nil {
		r.out.Answers = append(r.out.Answers, Answer{Call: id, Err: Unavailable(cause)})
		return id
	}
	r.reads.waiting = append(r.reads.waiting, read{id, r.now + r.config.CallTimeout})
	r.settle()
	return id
}

// requestReads asks the leader for the read index of the waiting reads, and answers those that may
// be answered. A leader asks only when it is ready: raft answers a leader that is the only voter
// before that, with a commit index that may be older than an answer of its former life.
func (r *Replica) requestReads() {
	if len(r.reads.waiting) > 0 && r.lead.leader != 0 && (r.lead.ready || !r.lead.leading) {
		r.reads.last++
		g := readGroup{number: r.reads.last, ticks: r.ticks, reads: r.reads.waiting}
		r.reads.waiting = nil
		r.reads.asked = append(r.reads.asked, g)
		r.askLeader(g.number)
	}
	for i := range r.reads.asked {
		if g := &r.reads.asked[i]; g.again {
			g.again, g.ticks = false, r.ticks
			r.askLeader(g.number)
		}
	}
	for len(r.reads.confirmed) > 0 && r.reads.confirmed[0].index <= r.applied {
		for _, one := range r.reads.confirmed[0].reads {
			r.out.Answers = append(r.out.Answers, Answer{Call: one.id})
		}
		r.reads.confirmed = r.reads.confirmed[1:]
	}
}

// askLeader asks for the read index of a group.
func (r *Replica) askLeader(number uint64) { r.node.ReadIndex(r.readContext(number)) }

// readContext names a group of reads of this process.
func (r *Replica) readContext(number uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, r.config.Incarnation)
	return binary.BigEndian.AppendUint64(b, number)
}

// resolveReads takes the answers of the leader.
func (r *Replica) resolveReads(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 16 || binary.BigEndian.Uint64(s.RequestCtx) != r.config.Incarnation {
			continue
		}
		number := binary.BigEndian.Uint64(s.RequestCtx[8:])
		i := slices.IndexFunc(r.reads.asked, func(g readGroup) bool { return g.number == number })
		if i < 0 {
			continue // it was asked twice, or of another leader
		}
		g := r.reads.asked[i]
		g.index = s.Index
		r.reads.asked = slices.Delete(r.reads.asked, i, i+1)
		at, _ := slices.BinarySearchFunc(r.reads.confirmed, g.index, func(c readGroup, index uint64) int {
			return int(int64(c.index - index))
		})
		r.reads.confirmed = slices.Insert(r.reads.confirmed, at, g)
	}
}

// restartReads lets all asked reads ask again: the former leader does not answer.
func (r *Replica) restartReads() {
	for _, g := range r.reads.asked {
		r.reads.waiting = append(r.reads.waiting, g.reads...)
	}
	r.reads.asked = nil
}

// retryReads lets reads ask again whose request or answer may be lost, and ends those whose deadline
// has passed. They ask under the same number, so an answer that takes longer than this is not missed.
func (r *Replica) retryReads() {
	patience := uint64(r.config.HeartbeatTicks) * 2
	r.reads.asked = slices.DeleteFunc(r.reads.asked, func(g readGroup) bool { return len(g.reads) == 0 })
	for i := range r.reads.asked {
		g := &r.reads.asked[i]
		g.again = g.again || r.ticks-g.ticks > patience
	}
	expire := func(list []read) []read {
		return slices.DeleteFunc(list, func(one read) bool {
			late := one.deadline <= r.now
			if late {
				r.out.Answers = append(r.out.Answers, Answer{Call: one.id, Err: Unavailable(ErrNoLeader)})
			}
			return late
		})
	}
	r.reads.waiting = expire(r.reads.waiting)
	for _, groups := range [][]readGroup{r.reads.asked, r.reads.confirmed} {
		for i := range groups {
			groups[i].reads = expire(groups[i].reads)
		}
	}
}

func (r *Replica) cancelRead(id CallID) {
	remove := func(list []read) []read {
		return slices.DeleteFunc(list, func(one read) bool { return one.id == id })
	}
	r.reads.waiting = remove(r.reads.waiting)
	for _, groups := range [][]readGroup{r.reads.asked, r.reads.confirmed} {
		for i := range groups {
			groups[i].reads = remove(groups[i].reads)
		}
	}
}

func (r *Replica) endAllReads(cause error) {
	r.restartReads()
	for _, g := range r.reads.confirmed {
		r.reads.waiting = append(r.reads.waiting, g.reads...)
	}
	for _, one := range r.reads.waiting {
		r.out.Answers = append(r.out.Answers, Answer{Call: one.id, Err: Unavailable(cause)})
	}
	r.reads = reads{}
}
