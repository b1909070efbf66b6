package observe

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Watch follows all claims of an engine, and tells metrics and the audit log what
// becomes of them. It remembers some 100 bytes of every claim that lives. It is safe
// for concurrent use.
type Watch struct {
	engine  lockkeeper.Engine
	metrics *Metrics
	audit   *Audit
	logger  *slog.Logger
	began   time.Time

	mu      sync.Mutex // guards all below; nothing is called with it that could wait
	live    map[lockkeeper.Ref]record
	freezes map[lockkeeper.Path]freeze
	held    int    // of live
	round   uint32 // counts the times that following began
}

// A record is what is remembered of a claim. Moments are durations since the watch
// began; those before are negative.
type record struct {
	held  bool
	asked lockkeeper.Reason // why it was asked to yield, if it was
	round uint32            // in which it was told of last
	fence uint64
	since time.Duration // it was granted, or began to wait
	queue time.Duration // a conversion of it began to wait; lockkeeper.Forever: none does
	due   time.Duration // the engine ends it then, or its wait; lockkeeper.Forever: never
}

// A freeze is what is remembered of an operator's freeze of one path.
type freeze struct {
	ref   lockkeeper.Ref
	round uint32
	due   time.Duration
}

// Bounds of following.
const (
	firstPause = 100 * time.Millisecond // before following begins anew
	lastPause  = 5 * time.Second
	settleTime = time.Second // after which what was not told of any more is asked for
	mostAsked  = 10_000      // claims that are asked for so, one by one
)

// NewWatch returns a watch of e, which must not be a decorated engine: it sees all
// sessions. The metrics, the audit log and the logger may each be nil. Metrics have
// one watch.
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

// Run follows the engine until ctx ends. If following fails, it begins anew: what
// happened in between is made out as far as it can be, and the gap is counted and
// goes to the audit log.
func (w *Watch) Run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		w.metrics.gaps.Inc()
		w.logger.Warn("the watch of the locks begins anew", "error", err, "again_in", pause)
		w.audit.gap(err)
		rest(ctx, pause)
	}
}

// follow takes in what the engine tells, until it stops telling.
func (w *Watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.round++
	first := w.round == 1
	w.mu.Unlock()
	if !first {
		settled := make(chan struct{})
		defer func() { <-settled }()
		go func() {
			defer close(settled)
			w.settle(ctx)
		}()
		defer cancel()
	}
	// In the end it takes in what was told until then.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(gathering, stop) })()
	var h hurry
	var gathered time.Time
	for st, err := range w.engine.List(following, lockkeeper.Query{Follow: true, Brief: true}) {
		if err != nil {
			return err
		}
		if now := time.Now(); !h.spend(now) && now.Sub(gathered) > gathering {
			rest(ctx, gathering) // what comes meanwhile is told at once
			gathered = time.Now()
		}
		w.take(&st)
	}
	return nil
}

// settle asks what became of those that are not told of any more, since following
// began anew.
func (w *Watch) settle(ctx context.Context) {
	if rest(ctx, settleTime); ctx.Err() != nil {
		return
	}
	for i, ref := range w.missing() {
		ended := lockkeeper.Status{Ref: ref, State: lockkeeper.Ended}
		if i < mostAsked {
			for st, err := range w.engine.List(ctx, lockkeeper.Query{Ref: ref}) {
				if err != nil {
					return // following ends too, and begins anew
				}
				ended = st
			}
		}
		if w.stillMissing(ref) {
			w.take(&ended)
		}
	}
}

// missing is who was not told of since following began, and forgets such freezes.
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

// take takes in how one claim or freeze stands.
func (w *Watch) take(st *lockkeeper.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.began)
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

// later is the moment so long after now.
func later(now, left time.Duration) time.Duration {
	if left >= lockkeeper.Forever-now {
		return lockkeeper.Forever
	}
	return now + left
}

// holds takes in a claim that is held.
func (w *Watch) holds(st *lockkeeper.Status, now time.Duration) {
	r, known := w.live[st.Ref]
	granted := now - st.Age
	switch {
	case r.fence == st.Fence: // nothing new in that
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

// granted counts a grant: the first of a claim, or that of an upgrade. r is brought
// up to it.
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

// ends takes in the end of a claim.
func (w *Watch) ends(st *lockkeeper.Status, now time.Duration) {
	r, known := w.live[st.Ref]
	ended := now - st.Age
	switch {
	case known && st.Fence == 0 && r.fence != 0 && st.Reason == lockkeeper.NoReason: // nobody knows how
		st.Fence = r.fence
	case st.Fence != 0 && st.Fence != r.fence:
		// It came and went before it was seen held: the hold was as short as that.
		w.granted(st, &r, known, ended)
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

// freezeOf is the path of the freeze that ended by st; false if that is a claim.
func (w *Watch) freezeOf(st *lockkeeper.Status) (lockkeeper.Path, bool) {
	if len(st.Grants) != 1 || len(w.freezes) == 0 || st.Fence != 0 {
		return "", false
	}
	f, frozen := w.freezes[st.Grants[0].Path]
	return st.Grants[0].Path, frozen && f.ref == st.Ref
}

// thawed takes in the end of a freeze. The mutex is held.
func (w *Watch) thawed(path lockkeeper.Path, st *lockkeeper.Status) {
	delete(w.freezes, path)
	w.audit.thawed(path, st)
}

// Counts are how many claims are held, and how many wait, as far as the watch has seen.
func (w *Watch) Counts() (held, waiting int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, len(w.live) - w.held
}

// present is what lives at a moment.
type present struct {
	held, waiting, freezes            int
	oldestHold, oldestWait, expiryLag time.Duration
}

// present looks at everything once.
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
