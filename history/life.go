package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// never is the time of an event that did not happen.
const never time.Duration = math.MaxInt64

// life is the course of one claim, from its request to its end.
type life struct {
	ask      Event
	asked    bool
	sent     time.Duration // when the request was first handed to the engine; never: the record does not say
	waits    time.Duration // when the client knew that it waits in the place that its last Sent gave it
	answers  []Event
	grant    *Event // the first grant
	convert  *Event // the conversion in flight
	spans    []*span
	end      Event         // the first Release, Lost or Gone
	ended    time.Duration // when the end was called or observed
	answered time.Duration // when the engine answered the release
	counts   []count
	wrong    []string
}

// span is a certain interval of a hold with constant targets.
type span struct {
	of          *life
	targets     []lockkeeper.Target
	grants      []lockkeeper.Grant
	call        time.Duration // when the grant was requested
	from, to    time.Duration // the certain interval
	fence       uint64
	unconfirmed bool
	lost        bool // it ended by a loss, not by a release
}

type count struct {
	path      lockkeeper.Path
	call, ret time.Duration
	value     int64
}

func (s *span) String() string {
	var targets []string
	for _, t := range s.targets {
		targets = append(targets, t.String())
	}
	text := fmt.Sprintf("%s [%s; asked for at %s, fence %d, held from %s", s.of.ask.Claim, strings.Join(targets, ", "),
		s.call, s.fence, s.from)
	switch {
	case s.to == never:
		text += " on"
	case s.lost:
		text += fmt.Sprintf(" until it knew of its loss (%s) at %s", s.of.end.Reason, s.to)
	default:
		text += fmt.Sprintf(" until %s", s.to)
	}
	if s.unconfirmed {
		text += ", unconfirmed"
	}
	return text + "]"
}

// fold returns the lives in events, which must be in order.
func fold(events []Event) []*life {
	byClaim := make(map[string]*life)
	var lives []*life
	for i := range events {
		e := &events[i]
		if e.Kind == Gone {
			for _, l := range lives {
				if l.ask.Client == e.Client {
					l.finish(e)
				}
			}
			continue
		}
		l := byClaim[e.Claim]
		if l == nil {
			l = &life{sent: never, waits: never, ended: never, answered: never}
			l.ask = Event{Claim: e.Claim, Client: e.Client}
			byClaim[e.Claim] = l
			lives = append(lives, l)
		}
		l.add(e)
	}
	return lives
}

// add adds the next event of the claim.
func (l *life) add(e *Event) {
	if !l.asked && e.Kind != Ask {
		l.wrongf("answers: %s: %s at %s, but it was never asked for", e.Claim, e.Kind, e.At)
		l.asked = true
	}
	switch e.Kind {
	case Ask:
		if l.asked {
			l.wrongf("answers: %s was asked for twice, at %s and %s", e.Claim, l.ask.At, e.At)
		}
		l.ask, l.asked = *e, true
	case Sent:
		l.sent = min(l.sent, e.At)
		if l.grant == nil {
			l.waits = never // the engine may have ended the claim and given it a new place
		}
	case Waits:
		l.waits = min(l.waits, e.At)
	case Cancel: // when the engine receives the end is unknown, and nothing is judged by it
	case Granted, Refused, Unknown:
		l.answers = append(l.answers, *e)
		if e.Kind == Granted && l.grant == nil {
			l.grant = e
			l.begin(e, l.ask.Targets, l.ask.At)
		}
	case Convert, Converted, Unconverted:
		l.change(e)
	case Release, Lost:
		l.finish(e)
	case Released:
		l.answered = min(l.answered, e.At)
	case Count:
		l.counts = append(l.counts, count{path: e.Path, call: e.At, ret: never})
	case Counted:
		if n := len(l.counts); n > 0 && l.counts[n-1].ret == never {
			l.counts[n-1].ret, l.counts[n-1].value = e.At, e.Value
		}
	default:
		l.wrongf("answers: %s: event %q at %s is unknown", e.Claim, e.Kind, e.At)
	}
}

// begin begins a certain interval at e.
func (l *life) begin(e *Event, targets []lockkeeper.Target, call time.Duration) {
	if l.ended != never {
		return // the answer came after the end: the client did not use the hold
	}
	l.spans = append(l.spans, &span{of: l, targets: targets, grants: e.Grants, call: call, from: e.At, to: never,
		fence: e.Fence, unconfirmed: e.Unconfirmed})
}

// change handles the events of a conversion. While it is in flight, only the weaker of the two modes
// is certain, which is shared.
func (l *life) change(e *Event) {
	if len(l.spans) == 0 || l.ended != never {
		return
	}
	last := l.spans[len(l.spans)-1]
	switch {
	case e.Kind == Convert:
		l.convert = e
		if last.targets[0].Mode == lockkeeper.ModeExclusive {
			last.to = e.At
			l.begin(&Event{At: e.At, Fence: last.fence, Unconfirmed: last.unconfirmed}, e.Targets, last.call)
		}
	case l.convert == nil:
		l.wrongf("answers: %s: %s at %s, but no conversion was asked for", e.Claim, e.Kind, e.At)
	case e.Kind == Converted && l.convert.Targets[0].Mode == lockkeeper.ModeExclusive:
		last.to = e.At
		l.begin(e, l.convert.Targets, l.convert.At)
		l.convert = nil
	default:
		l.convert = nil
	}
}

// finish ends the certain interval.
func (l *life) finish(e *Event) {
	if l.ended != never {
		return
	}
	l.end, l.ended = *e, e.At
	if n := len(l.spans); n > 0 {
		l.spans[n-1].to = e.At
		l.spans[n-1].lost = e.Kind == Lost
	}
}

func (l *life) wrongf(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// refusedAtOnce reports whether l was a try that the engine refused. Every other claim without a
// known grant may have been granted and ended unheard: its client gave up, or its session ended,
// while the answer was under way. Its end may reach the engine long after its client gave up.
func (l *life) refusedAtOnce() bool {
	return l.ask.Try && len(l.answers) > 0 && l.answers[0].Kind == Refused && l.answers[0].Reason == lockkeeper.TimedOut
}

// arrival returns a time before which the engine cannot have received the request.
func (l *life) arrival() time.Duration {
	if l.sent == never {
		return l.ask.At
	}
	return l.sent
}
