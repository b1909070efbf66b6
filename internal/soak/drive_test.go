package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/all"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
)

// A driving is what a process is to do that loads one engine.
type driving struct {
	URL      string
	Dir      string // of the engine's files; may be empty
	Seed     uint64
	Interval time.Duration // from one request of a worker to its next one
	Reopen   bool          // some visitors open the engine for themselves
	// Votes: several servers vote, so that requests which arrive at one moment refuse each other, and
	// servers may know them in different orders.
	Votes bool
	Leak  string // what the engine leaks with each claim: goroutine, memory, file
}

const (
	clients = 4 // for the whole soak, with two workers each
	ttl     = 5 * time.Second
	// longHold bounds the duration of one hold in twenty: others wait meanwhile.
	longHold = 300 * time.Millisecond
)

// A paused is what a driving process says in each pause.
type paused struct {
	Sample
	Text   string   `json:"text"`   // what became of the requests so far
	Faults []string `json:"faults"` // of the history since the last pause
}

// obey carries out the commands of the process that started this one, a line each, and answers with
// a line of JSON. ^C at the terminal is for that process, which then ends this one.
func obey(do func(command string) (any, error)) error {
	signal.Ignore(os.Interrupt)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := do(lines.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		fmt.Printf("ok %s\n", text)
		if lines.Text() == "end" {
			return nil
		}
	}
	return lines.Err()
}

// drive is the role of a process that loads an engine.
func drive(args []string) error {
	var d driving
	if err := json.Unmarshal([]byte(args[0]), &d); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := lockkeeper.Open(ctx, d.URL)
	if err != nil {
		return err
	}
	e = withLeak(e, d.Leak)
	r := &driver{driving: d, engine: e}
	r.begin()
	return obey(r.do)
}

// driver is the load of one process.
type driver struct {
	driving
	engine    lockkeeper.Engine
	load      *stress.Load
	guests    *guests
	cpu, from time.Duration // used by the load until the last pause; of the process when it went on
}

// begin makes the clients, which rest until the first resume.
func (r *driver) begin() {
	rules := history.RulesOf(r.engine.Guarantees())
	if r.Votes {
		rules.FIFO, rules.Priority, rules.SplitVotes = false, false, true
	}
	r.load = stress.New(r.Seed, rules)
	r.load.Interval, r.load.Long = r.Interval, longHold
	for range clients {
		r.load.Add("client", r.engine, 2, lockkeeper.SessionTTL(ttl), lockkeeper.SharedEngine())
	}
	r.guests = newGuests(r)
	r.load.Pause()
}

func (r *driver) do(command string) (any, error) {
	switch command {
	case "resume":
		var err error
		r.from, err = CPU()
		r.load.Resume()
		r.guests.resume()
		return nil, err
	case "pause":
		return r.pause()
	case "end":
		err := stress.CheckFree(sharedEngine{r.engine}, 30*time.Second)
		r.guests.close()
		return nil, joined(err, r.load.Close(), r.engine.Close())
	}
	return nil, fmt.Errorf("unknown command")
}

// pause stops the load, judges its history and takes a sample.
func (r *driver) pause() (*paused, error) {
	r.guests.pause()
	r.load.Pause()
	now, err := CPU()
	if err != nil {
		return nil, err
	}
	r.cpu += now - r.from
	p := &paused{Faults: append(r.load.Faults(), r.guests.faults()...)}
	p.Text = fmt.Sprintf("%v; %v", r.load, r.guests)
	if p.Sample, err = Self(); err != nil {
		return nil, err
	}
	p.CPU = r.cpu
	l := r.load
	p.Operations = l.Granted.Load() + l.Refused.Load() + l.Unknown.Load() + r.guests.operations.Load()
	if r.Dir != "" {
		p.Disk, err = Folder(r.Dir)
	}
	return p, err
}

// sharedEngine stays open when a client closes it.
type sharedEngine struct{ lockkeeper.Engine }

func (sharedEngine) Close() error { return nil }
