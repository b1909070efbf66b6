package redlock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// stateBound is how long a server may take for its part of the report.
const stateBound = 2 * time.Second

// state reports what explains why no lock is granted: of each server the fault that lasts, its record of
// the set and its claims; of each client which servers its engine does not use, and what its party counts.
func (f *faulty) state() string {
	var b strings.Builder
	for i, s := range f.servers {
		fmt.Fprintf(&b, "server %d at %s, fault: %s\n", i, s.Addr(), cmp.Or(s.fault, "none"))
		for _, name := range []string{"gen", "marker", "out"} {
			value, err := s.ask("HGET lockkeeper:set "+name, stateBound)
			if err != nil {
				fmt.Fprintf(&b, "\tno answer: %v\n", err)
				break
			}
			fmt.Fprintf(&b, "\t%s %s\n", name, value)
		}
		f.writeClaims(&b, i)
	}
	for k, e := range f.engines {
		for i := range e.servers {
			if up, why := e.serverState(i); !up {
				fmt.Fprintf(&b, "client%d does not use server %d: %v\n", k, i, why)
			}
		}
		e.mu.Lock()
		fmt.Fprintf(&b, "client%d:\n%s", k, e.party.Describe(e.clock()))
		e.mu.Unlock()
	}
	return b.String()
}

// writeClaims writes the claims of a server, as the first engine reads them that uses it.
func (f *faulty) writeClaims(b *strings.Builder, i int) {
	ctx, cancel := context.WithTimeout(context.Background(), stateBound)
	defer cancel()
	for _, e := range f.engines {
		if up, _ := e.serverState(i); !up {
			continue
		}
		if r := e.servers[i].readAll(ctx, "", false); r != nil {
			for _, id := range slices.Sorted(maps.Keys(r.sessions)) {
				writeSession(b, r.sessions[id], r.now)
			}
			return
		}
	}
	b.WriteString("\tits claims are unknown: no client uses it\n")
}

func writeSession(b *strings.Builder, s *quorum.SessionState, now quorum.Micros) {
	duration := func(m quorum.Micros) time.Duration { return time.Duration(m) * time.Microsecond }
	fmt.Fprintf(b, "\tsession %s of %s, epoch %d, ends in %v\n", s.ID, s.Label.As, s.Epoch, duration(s.Until-now))
	for k := range s.Claims {
		c := &s.Claims[k]
		fmt.Fprintf(b, "\t\t%d is %v", c.ID, c.State)
		if c.State == lockkeeper.Ended {
			fmt.Fprintf(b, ": %v\n", c.Reason)
			continue
		}
		if c.Want != nil {
			fmt.Fprintf(b, " %v, priority %d, ticket %d", c.Want.Paths, c.Want.Priority, c.Want.Ticket)
		}
		fmt.Fprintf(b, ", vote %d, counter %d, for %v; lapsed %t; behind", c.Vote, c.Counter, duration(now-c.Since), c.Lapsed)
		for k := range c.Blockers {
			fmt.Fprintf(b, " %v", c.Blockers[k].Ref)
		}
		b.WriteString("\n")
	}
}
