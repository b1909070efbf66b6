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

// mostOpen bounds the open spans of waiting claims. Beyond it, begin ends one of them early, with
// an event that says so.
const mostOpen = 10_000

// scope is the instrumentation scope of the spans.
const scope = "github.com/lockkeeper/lockkeeper/tracing"

// Wrap returns e with its claims traced: a span "lock PATH" begins with a claim, as a child of the
// span of its context, and ends when the claim is granted, refused, cancelled or ended. Its
// attributes are the claim, its paths and modes, the outcome and the fence. Renewals, releases and
// queries have no span.
//
// The result forwards to e, and is as safe for concurrent use. It has none of e's optional methods.
func Wrap(e lockkeeper.Engine, provider trace.TracerProvider) lockkeeper.Engine {
	return &traced{Engine: e, tracer: provider.Tracer(scope), open: make(map[lockkeeper.Ref]trace.Span)}
}

// traced is an engine whose claims are traced.
type traced struct {
	lockkeeper.Engine
	tracer trace.Tracer

	spans atomic.Int32 // the length of open, readable without the mutex

	mu   sync.Mutex
	open map[lockkeeper.Ref]trace.Span // of claims in flight or waiting
}

// Outage implements lockkeeper.OutageReporter.
func (t *traced) Outage() error { return lockkeeper.OutageOf(t.Engine) }

// Claim implements lockkeeper.Engine.
func (t *traced) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		st, err := t.Engine.Claim(ctx, k, w)
		if err == nil {
			t.update(&st) // the call may repeat a claim whose span is open
		}
		return st, err
	}
	ref := lockkeeper.Ref{Session: k.Session, ID: w.ID}
	ctx, span := t.tracer.Start(ctx, "lock "+paths(w.Targets), trace.WithAttributes(wanted(ref, &w)...))
	mine := t.begin(ref, span) // before the call: a notification of the grant may overtake the answer
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
		t.update(&st)
		finish(span, &st)
	}
	return st, err
}

// begin stores the span of a claim until the claim is granted or ended. It returns false if the
// claim has an open span: then this call repeats or amends the claim, and its own span ends with
// its answer.
func (t *traced) begin(ref lockkeeper.Ref, span trace.Span) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[ref]; open {
		return false
	}
	if len(t.open) >= mostOpen {
		for other, early := range t.open { // any one of them will do
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

// end removes and returns the open span of a claim; nil if there is none.
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

// update ends the span of a claim that no longer waits.
func (t *traced) update(st *lockkeeper.Status) {
	if t.spans.Load() == 0 || st.State == lockkeeper.Waiting || st.Converting {
		return
	}
	if span := t.end(st.Ref); span != nil {
		finish(span, st)
	}
}

// finish adds the outcome of a claim to its span, and ends the span.
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
		t.updateAll(all)
		if notify != nil {
			notify(all)
		}
	})
	if err == nil {
		t.updateAll(lease.Claims)
	}
	return lease, err
}

// Renew implements lockkeeper.Engine.
func (t *traced) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := t.Engine.Renew(ctx, k)
	if err == nil {
		t.updateAll(lease.Claims)
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
		t.endSession(k.Session)
	}
	return nil
}

// cancelled is the status of a claim that its session has cancelled.
var cancelled = lockkeeper.Status{State: lockkeeper.Ended, Reason: lockkeeper.Cancelled}

// endSession ends the spans of a session that has left.
func (t *traced) endSession(session string) {
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

func (t *traced) updateAll(all []lockkeeper.Status) {
	for i := range all {
		t.update(&all[i])
	}
}

// paths returns the paths of the targets for the name of a span.
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

// wanted returns the span attributes of a request.
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

// got returns the span attributes of an outcome.
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
