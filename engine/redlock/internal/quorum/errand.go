package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An errand is a departure or a revocation: one request for every server, repeated until each has
// executed it or nothing is left to do. The calls are answered when a majority has.
type errand struct {
	request Request
	calls   []CallID
	flying  [7]bool
	done    [7]bool
	found   bool
	until   time.Duration // then it is dropped: the session is over by itself, the operator has gone
	timer   timer
}

// revokeBound is how long a revocation is repeated to servers that do not answer.
const revokeBound = 10 * time.Second

func (p *Party) beginErrand(e *errand) {
	e.timer = timer{errand: e, order: p.base.created()}
	p.errands = append(p.errands, e)
	p.pushErrand(e)
	p.timers.set(&e.timer, e.until)
}

func (p *Party) pushErrand(e *errand) {
	for i := range p.n {
		if p.up[i] && !e.done[i] && !e.flying[i] {
			e.flying[i] = true
			p.launch(flight{server: i, kind: e.request.Kind, errand: e}, e.request)
		}
	}
}

func (p *Party) retryErrand(e *errand, now time.Duration) {
	if slices.Contains(p.errands, e) {
		p.timers.set(&e.timer, min(now+retryPause, e.until))
	}
}

func (p *Party) wakeErrand(e *errand, now time.Duration) {
	if now >= e.until {
		p.dropErrand(e)
		return
	}
	p.timers.set(&e.timer, e.until)
	p.pushErrand(e)
}

func (p *Party) dropErrand(e *errand) {
	p.timers.set(&e.timer, never)
	if i := slices.Index(p.errands, e); i >= 0 {
		p.errands = slices.Delete(p.errands, i, i+1)
	}
}

func (p *Party) errandReply(f flight, r Reply, now time.Duration) {
	e := f.errand
	e.flying[f.server] = false
	e.done[f.server] = true
	e.found = e.found || r.Outcome == Done
	n := 0
	for i := range p.n {
		if e.done[i] {
			n++
		}
	}
	if n >= p.majority {
		var err error
		if !e.found && e.request.Kind == Revoke {
			err = &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: "there is no such claim"}
		}
		p.answerAll(e.calls, err)
		e.calls = nil
	}
	if n == p.n {
		p.dropErrand(e)
	}
}
