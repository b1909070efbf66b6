package observe

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Watch follows all claims of an engine, and reports their grants and ends to the metrics and the
// audit log. It keeps about 100 bytes for each open claim. It is safe for concurrent use.
type Watch struct {
	engine  lockkeeper.Engine
	metrics *Metrics
	audit   *Audit
	logger  *slog.Logger
	changes Changes // nil: nobody keeps them
	began   time.Time

	mu      sync.Mutex // guards all below; no call that could wait runs with it
	live    map[lockkeeper.Ref]record
	freezes map[lockkeeper.Path]freeze
	held    int           // of live
	round   uint32        // number of lists followed so far
	listed  time.Duration // when the present list began
}

// Changes is notified of all changes of claims and freezes that a Watch sees. Its methods return quickly, and keep
// the status without changing it.
type Changes interface {
	Begin() // the watch begins to follow; changes may have been missed before
	Changed(*lockkeeper.Status)
}

// A record is the last known state of a claim. Times are durations since the watch began; earlier
// ones are negative.
type record struct {
	held  bool
	asked lockkeeper.Reason // the reason of a request to yield; NoReason without one
	round uint32            // of the last list that had it
	fence uint64
	since time.Duration // when it was granted, or began to wait
	queue time.Duration // when its conversion began to wait; lockkeeper.Forever: none waits
	due   time.Duration // when the engine ends it, or its wait; lockkeeper.Forever: never
}

// A freeze is the last known state of an operator's freeze of one path.
type freeze struct {
	ref   lockkeeper.Ref
	round uint32
	due   time.Duration
}

// Bounds of following.
const (
	firstPause = 100 * time.Millisecond // before the watch follows the engine again
	lastPause  = 5 * time.Second
	settleTime = time.Second // until the watch looks up the claims that the list no longer has
	mostAsked  = 10_000      // claims that it looks up one by one
)

// NewWatch returns a watch of e, which must be an engine without a policy, so that it shows all
// sessions. The metrics, the audit log and the logger may each be nil. Metrics have one watch.
func NewWatch(e lockkeeper.Engine, m *Metrics, a *Audit, logger *slog.Logger) *Watch {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if m == nil {
		m = NewMetrics(Sources{})
	}
	w := &Watch{
		engine: e, metrics: m, audit: a, logger: logger, began: time.Now(),
		live: make(map[lockkeeper.Ref]record), freezes: make(map[lockkeeper.Path]freeze),
	}
	m.watch.Store(w)
	return w
}

// Notify has c notified of changes. It is called before Run.
func (w *Watch) Notify(c Changes) { w.changes = c }

// Run follows the engine until ctx ends. If the list fails, Run counts a gap, reports it to the audit
// log, and follows the engine again. It looks up the ends that it missed. Run returns at once if the
// engine has no List.
func (w *Watch) Run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, lockkeeper.ErrUnsupported) {
			w.logger.Warn("metrics and audit have no claims", "error", err)
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		w.metrics.gaps.Inc()
		w.logger.Warn("following the engine again", "error", err, "again_in", pause)
		w.audit.gap(err)
		sleep(ctx, pause)
	}
}

// follow records the statuses of one list, until the list ends.
func (w *Watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.round++
	w.listed = time.Since(w.began)
	first := w.round == 1
	w.mu.Unlock()
	if w.changes != nil {
		w.changes.Begin()
	}
	if !first {
		settled := make(chan struct{})
		defer func() { <-settled }()
		go func() {
			defer close(settled)
			w.reconcileMissing(ctx)
		}()
		defer cancel()
	}
	// When ctx ends, it still records the statuses that the engine has already.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(gathering, stop) })()
	var h rateLimit
	var gathered time.Time
	for st, err := range w.engine.List(following, lockkeeper.Query{Follow: true, Brief: true}) {
		if err != nil {
			return err
		}
		if now := time.Now(); !h.spend(now) && now.Sub(gathered) > gathering {
			sleep(ctx, gathering) // the next statuses come in one batch
			gathered = time.Now()
		}
		w.record(&st)
	}
	return nil
}

// reconcileMissing looks up the claims that the present list does not have, and that an earlier
// list had: they ended during the gap.
func (w *Watch) reconcileMissing(ctx context.Context) {
	if sleep(ctx, settleTime); ctx.Err() != nil {
		return
	}
	for i, ref := range w.missing() {
		ended := lockkeeper.Status{Ref: ref, State: lockkeeper.Ended}
		if i < mostAsked {
			for st, err := range w.engine.List(ctx, lockkeeper.Query{Ref: ref}) {
				if err != nil {
					return // follow ends, too, and Run repeats it
				}
				ended = st
			}
		}
		if w.stillMissing(ref) {
			w.record(&ended)
		}
	}
}

// missing returns the claims that the present list does not have, oldest first. It ends such
// freezes.
func (w *Watch) missing() (refs []lockkeeper.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, f := range w.freezes {
		if f.round != w.round {
			w.thawed(path, &lockkeeper.Status{Ref: f.ref})
		}
	}
	for ref, r := range w.live {
		if r.round != w.round {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b lockkeeper.Ref) int {
		return int(min(max(w.live[a].since-w.live[b].since, -1), 1))
	})
	return refs
}

func (w *Watch) stillMissing(ref lockkeeper.Ref) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, known := w.live[ref]
	return known && r.round != w.round
}

// record records a status of a claim or a freeze.
func (w *Watch) record(st *lockkeeper.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.began)
	if w.changes != nil && w.isChange(st, now) {
		w.changes.Changed(st)
	}
	switch st.State {
	case lockkeeper.Waiting:
		r, known := w.live[st.Ref]
		if !known {
			r = record{since: now - st.Age, queue: lockkeeper.Forever}
		}
		r.round, r.due = w.round, later(now, st.Left)
		w.live[st.Ref] = r
	case lockkeeper.Held:
		w.holds(st, now)
	case lockkeeper.Ended:
		if path, ok := w.freezeOf(st); ok {
			w.thawed(path, st)
			return
		}
		w.ends(st, now)
	case lockkeeper.Freezing:
		path := st.Grants[0].Path
		if w.freezes[path].ref != st.Ref {
			w.audit.frozen(st)
		}
		w.freezes[path] = freeze{ref: st.Ref, round: w.round, due: later(now, st.Left)}
	}
}

// isChange reports whether st is more than the state in which the present list found a claim or a freeze. The
// caller holds w.mu, and has not recorded st.
func (w *Watch) isChange(st *lockkeeper.Status, now time.Duration) bool {
	if now-st.Age >= w.listed || w.live[st.Ref].round == w.round {
		return true
	}
	path, ended := w.freezeOf(st)
	if st.State == lockkeeper.Freezing {
		path = st.Grants[0].Path
	}
	f, known := w.freezes[path]
	return known && f.round == w.round && (ended || f.ref == st.Ref)
}

// later returns now + left, and lockkeeper.Forever if that overflows.
func later(now, left time.Duration) time.Duration {
	if left >= lockkeeper.Forever-now {
		return lockkeeper.Forever
	}
	return now + left
}

// holds records a held claim.
func (w *Watch) holds(st *lockkeeper.Status, now time.Duration) {
	r, known := w.live[st.Ref]
	granted := now - st.Age
	switch {
	case r.fence == st.Fence: // known already
	case !known && granted < 0: // from before the watch
		r = record{since: granted}
		w.audit.holds(st)
	default:
		w.granted(st, &r, known, granted)
	}
	if !r.held {
		w.held++
	}
	r.held, r.round, r.fence, r.due = true, w.round, st.Fence, lockkeeper.Forever
	switch {
	case !st.Converting:
		r.queue = lockkeeper.Forever
	case r.queue == lockkeeper.Forever:
		r.queue = now
	}
	was := r.asked
	r.asked = lockkeeper.NoReason
	if st.Asked != nil {
		r.asked, r.due = st.Asked.Reason, later(now, st.Asked.Left)
	}
	if r.asked != was && st.Asked != nil {
		w.metrics.asked(r.asked)
		w.audit.asked(st)
	}
	w.live[st.Ref] = r
}

// granted reports a grant, the first one of a claim or that of an upgrade, and updates r.
func (w *Watch) granted(st *lockkeeper.Status, r *record, known bool, at time.Duration) {
	waited := time.Duration(0)
	switch {
	case r.held && r.queue != lockkeeper.Forever: // an upgrade; the hold goes on
		waited = time.Since(w.began) - r.queue
	case r.held:
	case known:
		waited = at - r.since
		r.since = at
	default:
		r.since = at
	}
	waited = max(waited, 0)
	w.metrics.granted(st, waited)
	w.audit.granted(st, waited)
}

// ends records the end of a claim.
func (w *Watch) ends(st *lockkeeper.Status, now time.Duration) {
	r, known := w.live[st.Ref]
	ended := now - st.Age
	switch {
	case known && st.Fence == 0 && r.fence != 0 && st.Reason == lockkeeper.NoReason: // the reason is unknown
		st.Fence = r.fence
	case st.Fence != 0 && st.Fence != r.fence:
		// The grant and the end came between two statuses.
		grant := *st
		grant.LogIndex = 0 // it is that of the end
		w.granted(&grant, &r, known, ended)
	}
	if r.held {
		w.held--
	}
	delete(w.live, st.Ref)
	took := max(ended-r.since, 0)
	if !known && st.Fence == 0 {
		took = 0 // refused at once
	}
	w.metrics.ended(st, took)
	w.audit.ended(st, took)
}

// freezeOf returns the path of the freeze that st ended; false if st is about a claim.
func (w *Watch) freezeOf(st *lockkeeper.Status) (lockkeeper.Path, bool) {
	if len(st.Grants) != 1 || len(w.freezes) == 0 || st.Fence != 0 {
		return "", false
	}
	f, frozen := w.freezes[st.Grants[0].Path]
	return st.Grants[0].Path, frozen && f.ref == st.Ref
}

// thawed records the end of a freeze. The caller holds w.mu.
func (w *Watch) thawed(path lockkeeper.Path, st *lockkeeper.Status) {
	delete(w.freezes, path)
	w.audit.thawed(path, st)
}

// Counts returns how many claims are held and how many wait, as far as the watch knows.
func (w *Watch) Counts() (held, waiting int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, len(w.live) - w.held
}

// present counts the open claims and freezes of one moment.
type present struct {
	held, waiting, freezes            int
	oldestHold, oldestWait, expiryLag time.Duration
}

// present counts in one pass.
func (w *Watch) present() (p present) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.began)
	p.held, p.waiting, p.freezes = w.held, len(w.live)-w.held, len(w.freezes)
	for _, r := range w.live {
		if r.held {
			p.oldestHold = max(p.oldestHold, now-r.since)
		} else {
			p.oldestWait = max(p.oldestWait, now-r.since)
		}
		p.expiryLag = max(p.expiryLag, now-r.due)
	}
	for _, f := range w.freezes {
		p.expiryLag = max(p.expiryLag, now-f.due)
	}
	return p
}
