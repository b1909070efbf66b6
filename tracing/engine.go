package tracing

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkeeper/lockkeeper"
)

// mostOpen is how many claims that wait have an open span. If there are more, the span
// of one of them ends early, and says so.
const mostOpen = 10_000

// scope names the spans' origin.
const scope = "github.com/lockkeeper/lockkeeper/tracing"

// Wrap returns e with its claims traced: a span "lock PATH" begins with a claim, as a
// child of the span that its context is within, and ends when the claim is granted,
// refused, given up or ended. Its attributes are those of the claim, and the fence that
// it got. Renewals, releases and questions leave no span.
//
// It does all that e does, and is as safe for concurrent use; what e can do beside the
// methods of an engine is left to e.
func Wrap(e lockkeeper.Engine, provider trace.TracerProvider) lockkeeper.Engine {
	return &traced{Engine: e, tracer: provider.Tracer(scope), open: make(map[lockkeeper.Ref]trace.Span)}
}

// traced is an engine whose claims are traced.
type traced struct {
	lockkeeper.Engine
	tracer trace.Tracer

	spans atomic.Int32 // in open, to be looked at without the mutex

	mu   sync.Mutex
	open map[lockkeeper.Ref]trace.Span // of claims that are asked for, or wait
}

// Claim implements lockkeeper.Engine.
func (t *traced) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		st, err := t.Engine.Claim(ctx, k, w)
		if err == nil {
			t.learn(&st) // it may be a retry of one that began in a span
		}
		return st, err
	}
	ref := lockkeeper.Ref{Session: k.Session, ID: w.ID}
	ctx, span := t.tracer.Start(ctx, "lock "+paths(w.Targets), trace.WithAttributes(wanted(ref, &w)...))
	mine := t.begin(ref, span) // before it is asked for: the grant may be told before the answer
	st, err := t.Engine.Claim(ctx, k, w)
	switch {
	case err != nil:
		if mine {
			t.end(ref)
		}
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		span.End()
	case mine && (st.State == lockkeeper.Waiting || st.Converting):
		span.AddEvent("waiting")
	default:
		t.learn(&st)
		finish(span, &st)
	}
	return st, err
}

// begin keeps a span until more is known of the claim; false if there is one already:
// then this is a retry, or an amendment, that needs none for longer than its answer.
func (t *traced) begin(ref lockkeeper.Ref, span trace.Span) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[ref]; open {
		return false
	}
	if len(t.open) >= mostOpen {
		for other, early := range t.open { // any will do
			early.AddEvent("too many claims wait: the end of this wait is not traced")
			early.End()
			delete(t.open, other)
			break
		}
	}
	t.open[ref] = span
	t.spans.Store(int32(len(t.open)))
	return true
}

// end takes a claim's open span out; nil if there is none.
func (t *traced) end(ref lockkeeper.Ref) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	span, open := t.open[ref]
	if !open {
		return nil
	}
	delete(t.open, ref)
	t.spans.Store(int32(len(t.open)))
	return span
}

// learn ends the span of a claim that waits no more.
func (t *traced) learn(st *lockkeeper.Status) {
	if t.spans.Load() == 0 || st.State == lockkeeper.Waiting || st.Converting {
		return
	}
	if span := t.end(st.Ref); span != nil {
		finish(span, st)
	}
}

// finish says what came of a claim, and ends the span.
func finish(span trace.Span, st *lockkeeper.Status) {
	span.SetAttributes(got(st)...)
	if st.State == lockkeeper.Ended && st.Fence == 0 {
		span.SetStatus(codes.Error, "not acquired: "+st.Reason.String())
	}
	span.End()
}

// Attach implements lockkeeper.Engine.
func (t *traced) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	lease, err := t.Engine.Attach(ctx, s, func(all []lockkeeper.Status) {
		t.learnAll(all)
		if notify != nil {
			notify(all)
		}
	})
	if err == nil {
		t.learnAll(lease.Claims)
	}
	return lease, err
}

// Renew implements lockkeeper.Engine.
func (t *traced) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := t.Engine.Renew(ctx, k)
	if err == nil {
		t.learnAll(lease.Claims)
	}
	return lease, err
}

// End implements lockkeeper.Engine.
func (t *traced) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	err := t.Engine.End(ctx, k, e)
	if err != nil {
		return err
	}
	switch {
	case t.spans.Load() == 0:
	case e.Kind == lockkeeper.Release:
		if span := t.end(lockkeeper.Ref{Session: k.Session, ID: e.ID}); span != nil {
			finish(span, &cancelled)
		}
	case e.Kind == lockkeeper.Leave:
		t.left(k.Session)
	}
	return nil
}

// cancelled is what becomes of a claim that its own session gives up.
var cancelled = lockkeeper.Status{State: lockkeeper.Ended, Reason: lockkeeper.Cancelled}

// left ends the spans of a session that was left.
func (t *traced) left(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref, span := range t.open {
		if ref.Session == session {
			finish(span, &cancelled)
			delete(t.open, ref)
		}
	}
	t.spans.Store(int32(len(t.open)))
}

func (t *traced) learnAll(all []lockkeeper.Status) {
	for i := range all {
		t.learn(&all[i])
	}
}

// paths are those of the targets, as the span's name tells them.
func paths(targets []lockkeeper.Target) string {
	const most = 3
	name := ""
	for i, target := range targets {
		if i == most {
			return name + " …"
		}
		if i > 0 {
			name += " "
		}
		name += string(target.Path)
	}
	return name
}

// wanted describes what is asked for.
func wanted(ref lockkeeper.Ref, w *lockkeeper.Want) []attribute.KeyValue {
	all := make([]string, len(w.Targets))
	modes := make([]string, len(w.Targets))
	for i, target := range w.Targets {
		all[i], modes[i] = string(target.Path), target.Mode.String()
	}
	attributes := []attribute.KeyValue{
		attribute.String("lockkeeper.claim", ref.String()),
		attribute.StringSlice("lockkeeper.paths", all),
		attribute.StringSlice("lockkeeper.modes", modes),
		attribute.Int("lockkeeper.priority", w.Priority),
	}
	if w.Wait < lockkeeper.MaxDuration {
		attributes = append(attributes, attribute.Float64("lockkeeper.wait_bound_seconds", w.Wait.Seconds()))
	}
	return attributes
}

// got describes what came of it.
func got(st *lockkeeper.Status) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("lockkeeper.state", st.State.String())}
	if st.Fence > 0 {
		attributes = append(attributes, attribute.Int64("lockkeeper.fence", int64(st.Fence)))
	}
	if st.State == lockkeeper.Ended {
		attributes = append(attributes, attribute.String("lockkeeper.reason", st.Reason.String()))
	}
	if st.Position > 0 {
		attributes = append(attributes, attribute.Int("lockkeeper.position", st.Position))
	}
	return attributes
}
