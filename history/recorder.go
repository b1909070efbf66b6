package history

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"
)

// Recorder collects events. It is safe for concurrent use.
type Recorder struct {
	clock func() time.Duration

	mu     sync.Mutex
	last   time.Duration
	events []Event
	out    *json.Encoder
	err    error
}

// NewRecorder returns a recorder that uses clock. For a history of several processes, clock is the
// machine's monotonic clock; nil means a clock that begins now. If out is not nil, Add writes every
// event to it as a JSON line before it returns, so the events of a killed process are kept.
func NewRecorder(clock func() time.Duration, out io.Writer) *Recorder {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	r := &Recorder{clock: clock}
	if out != nil {
		r.out = json.NewEncoder(out)
	}
	return r
}

// Add records e at the current time, which it returns. No two events of a recorder have the same
// time: their order is the order of the calls, even if the clock stands still.
func (r *Recorder) Add(e Event) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, r.clock())
	e.At = r.last
	r.events = append(r.events, e)
	if r.out != nil && r.err == nil {
		r.err = r.out.Encode(&e)
	}
	return e.At
}

// Events returns the events so far, in order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Err returns the first write error. Add writes nothing after it.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
