package quorum

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Describe returns for people what the party counts: of each session its servers, of each claim that is
// not over at all servers what each of them said.
func (p *Party) Describe(now time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\tup %v; %d attempts, %d errands, %d requests on their way\n", p.up, len(p.attempts), len(p.errands),
		len(p.flights))
	for _, s := range p.sortedSessions() {
		fmt.Fprintf(&b, "\tsession %s, epoch %d, lowest open %d, ends in %v\n", s.id, s.epoch, s.lowestOpen, s.limit()-now)
		for i := range s.seats {
			t := &s.seats[i]
			fmt.Fprintf(&b, "\t\tserver %d promises %v", i, t.promise-now)
			flags(&b, "joined", t.joined, "absent", t.absent, "displaced", t.other != 0,
				"ahead", p.ahead(s, i), "attaching", t.attaching,
				"renewing", t.renewing, "restoring", t.restoring)
		}
		for _, id := range slices.Sorted(maps.Keys(s.claims)) {
			if c := s.claims[id]; c.phase != ended || !c.executed(p.n) {
				p.describeClaim(&b, c, now)
			}
		}
	}
	return b.String()
}

func (p *Party) describeClaim(b *strings.Builder, c *claim, now time.Duration) {
	phases := [...]string{waiting: "waiting", held: "held", ended: "ended"}
	fmt.Fprintf(b, "\t\tclaim %d is %s %v for %v, aim %d, fence %d", c.id, phases[c.phase],
		c.record.Paths,
		now-c.since, c.aim, c.fence)
	flags(b, "answered", c.answered, "adopted", c.adopted, "lapsed", c.lapse != 0)
	for i := range c.at {
		v := &c.at[i]
		fmt.Fprintf(b, "\t\t\tserver %d, %v ago: vote %d, over up to %d, counter %d", i, now-v.stateGot, v.vote, v.gone,
			v.counter)
		flags(b, "current", p.current(c, i, now), "sent", v.sent, "known", v.known, "ended "+v.reason.String(), v.ended,
			"end executed", v.endDone, "claiming", v.claiming, "ending", v.ending, "stamping", v.stamping,
			"returning", v.returning)
	}
}

// flags writes the names of which the value is true.
func flags(b *strings.Builder, namesAndValues ...any) {
	for k := 0; k < len(namesAndValues); k += 2 {
		if namesAndValues[k+1].(bool) {
			fmt.Fprintf(b, ", %s", namesAndValues[k])
		}
	}
	b.WriteString("\n")
}
