package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// stateEvery is how often lk repeats the state of a wait without a change: a CI system may
// end a job that prints nothing for ten minutes.
const stateEvery = 2 * time.Minute

// The first promptLines changes are printed at once, later ones at most every changeEvery: before a claim with a low
// limit, holders may come and go all the time.
const (
	promptLines = 10
	changeEvery = 10 * time.Second
)

// waitReport prints the position and the blockers of a waiting claim, when they change and
// every stateEvery, until stop.
type waitReport struct {
	contest
	print  func(text string)
	client *lockkeeper.Client
	quit   context.CancelFunc // nil before the first change
	ended  chan struct{}

	mu      sync.Mutex
	printed string            // waitKey of the last printed status
	lines   int               // how many were printed
	at      time.Time         // when the last one was
	behind  bool              // a change was not printed
	last    lockkeeper.Status // the last one with blockers
}

func newWaitReport(c contest, print func(text string), client *lockkeeper.Client) *waitReport {
	return &waitReport{contest: c, print: print, client: client, ended: make(chan struct{})}
}

// changed prints a status if it differs from the last one.
func (r *waitReport) changed(ctx context.Context, status lockkeeper.Status) {
	if status.State != lockkeeper.Waiting {
		return
	}
	if r.quit == nil {
		ctx, r.quit = context.WithCancel(ctx)
		go r.repeat(ctx, status.Ref)
	}
	if len(status.Blockers) == 0 { // not every answer has evidence
		if status = r.read(ctx, status.Ref); status.State != lockkeeper.Waiting {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case waitKey(status) == r.printed:
	case r.lines < promptLines || time.Since(r.at) >= changeEvery:
		r.write(status)
	default:
		r.behind = true
	}
}

// read returns the status of the claim; it is zero on an error.
func (r *waitReport) read(ctx context.Context, ref lockkeeper.Ref) lockkeeper.Status {
	for status, err := range r.client.List(ctx, lockkeeper.Query{Ref: ref}) {
		if err == nil {
			return status
		}
	}
	return lockkeeper.Status{}
}

// stop ends the repetition.
func (r *waitReport) stop() {
	if r.quit != nil {
		r.quit()
		<-r.ended
	}
}

func (r *waitReport) repeat(ctx context.Context, ref lockkeeper.Ref) {
	defer close(r.ended)
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		due := r.behind || time.Since(r.at) >= stateEvery
		r.mu.Unlock()
		if !due {
			continue
		}
		if status := r.read(ctx, ref); status.State == lockkeeper.Waiting {
			r.mu.Lock()
			r.write(status)
			r.mu.Unlock()
		}
	}
}

// write prints a status. If nothing blocks the claim any more, it waits for the engine to end
// the last holder. The caller holds r.mu.
func (r *waitReport) write(status lockkeeper.Status) {
	r.printed, r.at, r.behind = waitKey(status), time.Now(), false
	r.lines++
	if len(status.Blockers) > 0 {
		r.last = status
	} else if before := r.last.Blockers; len(before) > 0 && len(ownReasons(status)) == 0 {
		r.print(fmt.Sprintf("%s: waiting for the engine to end %s, which has not renewed%s",
			r.name(before), who(before[0].Label, before[0].Ref), r.others()))
		return
	}
	r.print("waiting for " + r.line(status))
}
