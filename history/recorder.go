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

// NewRecorder returns a recorder that takes the time from clock: for a history
// of several processes the machine's monotonic clock, else nil for a clock that
// begins now. If out is not nil, every event is written there as a JSON line
// before Add returns, so that what a killed process did is not forgotten.
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

// Add records e at the present moment, which it returns. No two events of a
// recorder have the same moment: their order is the order of the calls, even
// where the clock stands still.
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

// Events are the events so far, in their order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Err is the first error of writing, after which nothing more was written.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
