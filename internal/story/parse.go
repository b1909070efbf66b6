package story

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	durations "github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/table"
)

// line is a command as it stands in a story, before its time and epoch are known.
type line struct {
	command table.Command
	timed   bool          // it says when
	passed  time.Duration // of pass: how much later than before
}

// Parse reads one line of a story. A time or an epoch that the line leaves out
// is 0: only a Runner knows the line before.
func Parse(text string) (table.Command, error) {
	l, err := parseLine(text)
	l.command.At += l.passed
	return l.command, err
}

func parseLine(text string) (line, error) {
	words, err := split(text)
	if err != nil {
		return line{}, err
	}
	p := &parser{words: words}
	var l line
	if p.peek().text == "at" && p.peek().key == "" {
		p.next()
		l.timed = true
		l.command.At = p.duration(p.bare("time"))
	}
	verb := p.bare("command")
	p.command(verb, &l)
	p.options(&l.command)
	if p.err == nil && len(p.words) > 0 {
		p.failf("%q is one word too many", p.words[0].text)
	}
	if p.err != nil {
		return line{}, p.err
	}
	return l, nil
}

// parser eats the words of a line. The first thing that is wrong stays in err.
type parser struct {
	words []word
	err   error
}

func (p *parser) failf(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) peek() word {
	if len(p.words) == 0 {
		return word{}
	}
	return p.words[0]
}

func (p *parser) next() word {
	w := p.peek()
	if len(p.words) > 0 {
		p.words = p.words[1:]
	}
	return w
}

// bare eats a word without a key; what says what it should be.
func (p *parser) bare(what string) string {
	if len(p.words) == 0 || p.words[0].key != "" {
		p.failf("the %s is missing", what)
		return ""
	}
	return p.next().text
}

func (p *parser) number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.failf("%q is not a number", s)
	}
	return n
}

func (p *parser) int(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		p.failf("%q is not a number", s)
	}
	return n
}

func (p *parser) duration(s string) time.Duration {
	d, err := duration(s)
	if err != nil && p.err == nil {
		p.err = err
	}
	return d
}

func (p *parser) ref(s string) lockkeeper.Ref {
	if s == "" {
		return lockkeeper.Ref{}
	}
	r, err := lockkeeper.ParseRef(s)
	if err != nil && p.err == nil {
		p.err = err
	}
	return r
}

func (p *parser) command(verb string, l *line) {
	c := &l.command
	switch verb {
	case "pass":
		if len(p.words) > 0 {
			l.passed = p.duration(p.bare("duration"))
		}
	case "restart":
		c.Op = table.Restart
	case "attach":
		c.Op = table.Attach
		c.Session.ID = p.bare("session")
	case "renew":
		c.Op = table.Renew
		c.Key.Session = p.bare("session")
	case "gone":
		c.Op = table.Gone
		c.Key.Session = p.bare("session")
	case "claim", "freeze":
		p.claim(verb, c)
	case "release", "leave", "revoke", "thaw", "lapsed":
		p.ending(verb, c)
	default:
		p.failf("there is no command %q", verb)
	}
}

func (p *parser) claim(verb string, c *table.Command) {
	c.Op = table.Claim
	c.Key.Session = p.bare("session")
	c.Want.ID = p.number(p.bare("id"))
	if verb == "claim" {
		c.Want.Wait = lockkeeper.Forever
	}
	for more := true; more && p.err == nil; {
		var t lockkeeper.Target
		t.Mode = lockkeeper.ModeExclusive
		if verb == "claim" {
			if err := t.Mode.UnmarshalText([]byte(p.bare("mode"))); err != nil && p.err == nil {
				p.err = err
			}
		}
		more = p.peek().comma
		t.Path = lockkeeper.Path(p.bare("path"))
		if t.Mode == lockkeeper.ModePermits {
			more = p.peek().comma
			units, limit, ok := strings.Cut(p.bare("number of permits"), "/")
			if !ok {
				p.failf("permits are written as units/limit, such as 2/3")
			}
			t.Units, t.Limit = p.int(units), p.int(limit)
		}
		c.Want.Targets = append(c.Want.Targets, t)
	}
}

func (p *parser) ending(verb string, c *table.Command) {
	c.Op = table.End
	c.Key.Session = p.bare("session")
	switch verb {
	case "release":
		c.Ending.Kind = lockkeeper.Release
		c.Ending.ID = p.number(p.bare("id"))
	case "lapsed":
		c.Ending.Kind = lockkeeper.Lapsed
		c.Ending.Lapse = p.lapse(p.bare("lapse"))
	case "leave":
		c.Ending.Kind = lockkeeper.Leave
	case "revoke":
		c.Ending.Kind = lockkeeper.Revoke
		c.Ending.Ref = p.ref(p.bare("claim"))
	case "thaw":
		c.Ending.Kind = lockkeeper.Thaw
		c.Ending.Path = lockkeeper.Path(p.bare("path"))
	}
}

// lapse reads what lapseText writes: 1/stolen/5s.
func (p *parser) lapse(s string) (l lockkeeper.Lapse) {
	words := strings.Split(s, "/")
	if len(words) != 3 {
		p.failf("%q is no lapse: it is written as id/reason/end, such as 1/stolen/5s", s)
		return l
	}
	l.ID, l.EndsAt = p.number(words[0]), p.duration(words[2])
	if err := l.Reason.UnmarshalText([]byte(words[1])); err != nil && p.err == nil {
		p.err = err
	}
	return l
}

// options eats the words that may stand in any order.
func (p *parser) options(c *table.Command) {
	for p.err == nil && len(p.words) > 0 {
		w := p.next()
		if !p.label(w, c) && !p.option(w, c) && !(c.Op == table.Claim && p.claimOption(w, &c.Want)) {
			p.failf("%s is no part of this command", strings.TrimPrefix(w.key+"="+w.text, "="))
		}
	}
}

func (p *parser) label(w word, c *table.Command) bool {
	var l *lockkeeper.Label
	switch c.Op {
	case table.Attach:
		l = &c.Session.Label
	case table.Claim:
		l = &c.Want.Label
	case table.End:
		l = &c.Ending.Label
	default:
		return false
	}
	switch w.key {
	case "as":
		l.As = w.text
	case "note":
		l.Note = w.text
	case "link":
		l.Link = w.text
	default:
		return false
	}
	return true
}

func (p *parser) option(w word, c *table.Command) bool {
	switch {
	case w.key == "epoch" && c.Op == table.Attach && w.text == "none":
		c.Session.Epoch = NoEpoch
	case w.key == "epoch" && c.Op == table.Attach:
		c.Session.Epoch = p.number(w.text)
	case w.key == "epoch":
		c.Key.Epoch = p.number(w.text)
	case w.key == "lowest-open" && (c.Op == table.Renew || c.Op == table.Claim || c.Op == table.End):
		c.Key.LowestOpen = p.number(w.text)
	case w.key == "acked" && (c.Op == table.Renew || c.Op == table.Claim || c.Op == table.End):
		c.Key.Acked = p.number(w.text)
	case w.key == "ttl" && c.Op == table.Attach:
		c.Session.TTL = p.duration(w.text)
	case w.key == "named" && c.Op == table.Attach:
		for id := range strings.SplitSeq(w.text, ",") {
			c.Session.Named = append(c.Session.Named, p.number(id))
		}
	case w.key == "lapsed" && c.Op == table.Attach:
		c.Session.Lapsed = append(c.Session.Lapsed, p.lapse(w.text))
	case w.key == "" && w.text == "force" && c.Op == table.End:
		c.Ending.Force = true
	default:
		return false
	}
	return true
}

func (p *parser) claimOption(w word, want *lockkeeper.Want) bool {
	switch w.key {
	case "":
		switch w.text {
		case "soft":
			want.WriterPolicy = lockkeeper.Soft
		case "steal":
			want.Steal = lockkeeper.Ask
		default:
			return false
		}
	case "rev":
		want.Revision = p.number(w.text)
	case "priority":
		want.Priority = p.int(w.text)
	case "inside":
		want.Inside = p.ref(w.text)
	case "wait":
		want.Wait = 0
		if w.text != "try" {
			want.Wait = p.duration(w.text)
		}
	case "steal-after":
		want.Steal = lockkeeper.Take
		if part, is := durations.TTLPart(w.text); is {
			want.AfterTTL = part
		} else {
			want.After = p.duration(w.text)
		}
	default:
		d, ok := map[string]*time.Duration{
			"for":      &want.Freeze,
			"quiet":    &want.Quiet,
			"max-hold": &want.MaxHold,
			"grace":    &want.Grace,
			"expected": &want.Expected,
		}[w.key]
		if !ok {
			return false
		}
		*d = p.duration(w.text)
	}
	return true
}
