package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Conn reaches one server. redisconn.Server is one; its contract is there.
type Conn interface {
	Address() string
	Pipeline(ctx context.Context, commands [][]any) ([]any, error)
}

// Servers observes and changes the records of the servers of a set. It is safe for concurrent use,
// also by several processes: each change is one script, which compares the record first.
type Servers struct {
	prefix string
	conns  []Conn
	names  []string
}

// NewServers returns the servers in the order of the set. prefix begins the names of all keys.
func NewServers(prefix string, conns []Conn) *Servers {
	s := &Servers{prefix: prefix, conns: conns}
	for _, c := range conns {
		s.names = append(s.names, c.Address())
	}
	return s
}

// Key returns the name of the key of the record.
func (s *Servers) Key() string { return s.prefix + "set" }

// Names returns the addresses.
func (s *Servers) Names() []string { return s.names }

const (
	// observeBound is how long a server may take to answer.
	observeBound = 3 * time.Second
	// leastGrace and graceFactor: once a majority has answered, the others have graceFactor times
	// as long as that took, and leastGrace at least, before they count as silent.
	leastGrace  = 50 * time.Millisecond
	graceFactor = 3
)

// Observe reads the records of all servers at the same time. It does not wait long for a minority.
func (s *Servers) Observe(ctx context.Context) []Record {
	type answer struct {
		server int
		record Record
	}
	answers := make(chan answer, len(s.conns))
	bounded, cancel := context.WithTimeout(ctx, observeBound)
	for i := range s.conns {
		go func() { answers <- answer{i, s.observeOne(bounded, i)} }()
	}
	records := make([]Record, len(s.conns))
	for i := range records {
		records[i].Why = fmt.Errorf("no answer within the time that the others needed")
	}
	began, good := time.Now(), 0
	var late <-chan time.Time
	left := len(s.conns)
	for left > 0 {
		select {
		case a := <-answers:
			left--
			records[a.server] = a.record
			if a.record.Answered {
				good++
			}
		case <-late:
			late, left = nil, 0
			continue
		}
		if good > len(s.conns)/2 && late == nil {
			late = time.After(max(leastGrace, graceFactor*time.Since(began)))
		}
	}
	cancel()
	return records
}

func (s *Servers) observeOne(ctx context.Context, i int) Record {
	reply, err := s.run(ctx, i, observe, []string{s.Key()})
	if err != nil {
		return Record{Why: err}
	}
	r, err := parseRecord(reply)
	if err != nil {
		return Record{RunID: r.RunID, Why: err}
	}
	return r
}

// run runs a script at server i, and loads it if the server lacks it.
func (s *Servers) run(ctx context.Context, i int, script *Script, keys []string, args ...any) (any, error) {
	reply, err := s.eval(ctx, i, "EVALSHA", script.SHA(), keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply, err = s.eval(ctx, i, "EVAL", script.Source, keys, args)
	}
	return reply, err
}

func (s *Servers) eval(ctx context.Context, i int, verb, script string, keys []string, args []any) (any, error) {
	command := []any{verb, script, len(keys)}
	for _, key := range keys {
		command = append(command, key)
	}
	replies, err := s.conns[i].Pipeline(ctx, [][]any{append(command, args...)})
	if err != nil {
		return nil, err
	}
	if refused, ok := replies[0].(error); ok {
		return nil, refused
	}
	return replies[0], nil
}

// Durability of a server: whether it writes every change to disk before it answers.
type Durability func(i int) bool

// Apply makes one step of a plan. It reports whether the record was still as observed, so that the step
// was made. A step that was not made is no error: another party was faster.
func (s *Servers) Apply(ctx context.Context, p Plan, seen []Record, step Step, durable Durability) (bool, error) {
	i := step.Server
	r := &seen[i]
	keys := []string{s.Key()}
	same := []any{r.RunID, "", r.Recorded, flag(r), r.Vector.String()}
	if r.Generation != 0 {
		same[1] = strconv.FormatUint(uint64(r.Generation), 10)
	}
	switch step.Kind {
	case Tag:
		g := NewGeneration(step.Count, rand.Uint32())
		return s.change(ctx, i, tag, keys, append(same, uint64(g), bit(durable(i)), len(s.conns), i,
			strings.Join(s.names, " "))...)
	case Relabel:
		return s.change(ctx, i, relabel, keys, append(same, bit(durable(i)))...)
	case Commit:
		return s.change(ctx, i, commit, append(keys, p.Vector.Data(s.prefix, i)+"floor"),
			append(same, p.Vector.String(), firstFloor(seen), "first")...)
	case Join:
		return s.change(ctx, i, commit, append(keys, p.Vector.Data(s.prefix, i)+"floor"),
			append(same, p.Vector.String(), 0, "out")...)
	case Merge:
		args := []any{r.RunID, p.Vector.Set}
		for _, g := range p.Vector.Generations {
			args = append(args, strconv.FormatUint(uint64(g), 10))
		}
		return s.change(ctx, i, merge, keys, args...)
	case PutOut:
		all, err := s.ends(ctx, p.Vector, step.From, seen)
		if err != nil || all == nil {
			return false, err
		}
		left, floor := longest(all)
		return s.change(ctx, i, putOut, append(keys, p.Vector.Data(s.prefix, i)+"floor"),
			append(same, left.Microseconds(), floor)...)
	}
	return false, fmt.Errorf("a step for %s has the unknown kind %d", s.names[i], step.Kind)
}

// change runs a script that returns 1 if it changed the record.
func (s *Servers) change(ctx context.Context, i int, script *Script, keys []string, args ...any) (bool, error) {
	reply, err := s.run(ctx, i, script, keys, args...)
	return reply == int64(1), err
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// flag returns the field durable as it was observed; "" of a server without a record.
func flag(r *Record) string {
	if r.Generation == 0 {
		return ""
	}
	return bit(r.Durable)
}

// firstFloor is the floor of a new set: the time. So fences rise even after all servers have lost
// their data at once, as far as their clocks do not step back.
func firstFloor(seen []Record) int64 {
	var floor int64
	for i := range seen {
		floor = max(floor, seen[i].Now)
	}
	return floor
}

// ends reads the ends at the servers of a majority; nil if one of them is no longer as observed.
func (s *Servers) ends(ctx context.Context, v Vector, from []int, seen []Record) ([]Ends, error) {
	all, errs := make([]Ends, len(from)), make([]error, len(from))
	var reading sync.WaitGroup
	for k, j := range from {
		reading.Go(func() {
			all[k], errs[k] = s.Ends(ctx, j, v)
		})
	}
	reading.Wait()
	for k, j := range from {
		if errs[k] != nil {
			return nil, errs[k]
		}
		if all[k].RunID != seen[j].RunID || all[k].Marker != v.String() {
			return nil, nil
		}
	}
	return all, nil
}

// longest returns how long a server that lost its data stays out, and the floor that it gets. The
// servers' clocks may run at rates that differ by 1 %.
func longest(all []Ends) (out time.Duration, floor uint64) {
	for _, e := range all {
		out, floor = max(out, e.Left), max(floor, e.Floor)
	}
	return out + out/100 + 20*time.Millisecond, floor
}

// Announce has server i publish a text and the run id of its process on a channel, as "TEXT RUNID".
func (s *Servers) Announce(ctx context.Context, i int, channel, text string) error {
	_, err := s.run(ctx, i, announce, []string{s.Key()}, channel, text)
	return err
}

// Merge raises the generations in the marker of server i to those of v. run is the process for which
// the caller knows that it is a member.
func (s *Servers) Merge(ctx context.Context, i int, v Vector, run string) error {
	seen := make([]Record, len(s.conns))
	seen[i].RunID = run
	_, err := s.Apply(ctx, Plan{Vector: v}, seen, Step{Kind: Merge, Server: i}, nil)
	return err
}

// Sweep removes keys of server i if its marker is v. The caller names keys of former generations only.
func (s *Servers) Sweep(ctx context.Context, i int, v Vector, keys []string) error {
	_, err := s.change(ctx, i, sweep, append([]string{s.Key()}, keys...), v.String())
	return err
}

// Forget removes the record of server i, so that it counts as empty.
func (s *Servers) Forget(ctx context.Context, i int) error {
	_, err := s.run(ctx, i, forget, []string{s.Key()})
	return err
}

// Ends returns what server i states of its promises under the vector v.
func (s *Servers) Ends(ctx context.Context, i int, v Vector) (Ends, error) {
	if i >= len(v.Generations) {
		return Ends{}, fmt.Errorf("%w: it has fewer servers", ErrForeign)
	}
	data := v.Data(s.prefix, i)
	reply, err := s.run(ctx, i, ends, []string{s.Key(), data + "until", data + "floor"})
	if err != nil {
		return Ends{}, err
	}
	return parseEnds(reply)
}

// RaiseFloor raises the floor of server i to at least floor, if its marker is v.
func (s *Servers) RaiseFloor(ctx context.Context, i int, v Vector, floor uint64) error {
	_, err := s.change(ctx, i, raiseFloor, []string{s.Key(), v.Data(s.prefix, i) + "floor"}, v.String(), floor)
	return err
}
