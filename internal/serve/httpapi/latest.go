package httpapi

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An event is one change.
type event struct {
	lockkeeper.Status
	bytes int       // estimated
	at    time.Time // when it was reported
}

// aged returns the status as of now: its durations count on while it is kept for a client that
// resumes.
func (e *event) aged() lockkeeper.Status {
	st, kept := e.Status, time.Since(e.at)
	st.Age += kept
	left := func(d time.Duration) time.Duration {
		if d == lockkeeper.Forever {
			return d
		}
		return max(d-kept, 0)
	}
	st.Left = left(st.Left)
	if st.Asked != nil {
		asked := *st.Asked
		asked.Left = left(asked.Left)
		st.Asked = &asked
	}
	return st
}

// bytesOf estimates the memory of a status.
func bytesOf(st *lockkeeper.Status) int {
	n := 400 + len(st.Ref.Session) + len(st.Text) + len(st.As) + len(st.Note) + len(st.Link)
	for _, g := range st.Grants {
		n += 64 + len(g.Path)
	}
	for _, b := range st.Blockers {
		n += 160 + len(b.Ref.Session) + len(b.Path) + len(b.As) + len(b.Note) + len(b.Link)
	}
	return n
}

// latest keeps the latest events, at most so many and so many bytes. It is a ring that grows to its
// largest size, and then reuses its memory.
type latest struct {
	most, mostBytes int

	ring   []event
	oldest int // the index of the oldest event in ring
	count  int
	bytes  int
}

// add adds an event, and returns how many older ones it dropped for it.
func (l *latest) add(st *lockkeeper.Status) (dropped int) {
	if l.count == len(l.ring) && l.count < l.most {
		larger := make([]event, min(max(2*l.count, 64), l.most))
		copy(larger, l.last(l.count))
		l.ring, l.oldest = larger, 0
	}
	n := bytesOf(st)
	for l.count > 0 && (l.count == len(l.ring) || l.bytes+n > l.mostBytes) {
		oldest := &l.ring[l.oldest]
		l.bytes -= oldest.bytes
		*oldest = event{}
		l.oldest = (l.oldest + 1) % len(l.ring)
		l.count--
		dropped++
	}
	l.ring[(l.oldest+l.count)%len(l.ring)] = event{*st, n, time.Now()}
	l.count++
	l.bytes += n
	return dropped
}

// from returns a copy of at most n events, beginning with number i of those that are kept, the oldest
// first.
func (l *latest) from(i, n int) []event {
	events := make([]event, 0, max(0, min(n, l.count-i)))
	for len(events) < cap(events) {
		events = append(events, l.ring[(l.oldest+i+len(events))%len(l.ring)])
	}
	return events
}

// last returns a copy of the latest n events, the oldest first.
func (l *latest) last(n int) []event { return l.from(max(0, l.count-n), n) }
