package remote

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// About returns the state of the server, and the identity that it knows this client by. ErrInvalid if
// the server is too old to know the method.
func (e *Engine) About(ctx context.Context) (lockkeeper.ServerState, error) {
	return e.state(ctx, &request{Call: &wire.Call{Method: wire.MethodAbout}})
}

// Drain makes the server refuse new claims, and end once no claim is held or waits; the reason is for
// people. If the server has the version unlessVersion, it does nothing, and the answer has Already; ""
// is none. Drain returns at once. ErrDenied if the rules do not allow it to this client.
func (e *Engine) Drain(ctx context.Context, reason, unlessVersion string) (lockkeeper.ServerState, error) {
	return e.state(ctx, &request{
		Call:  &wire.Call{Method: wire.MethodDrain},
		drain: &wire.Drain{Reason: reason, UnlessVersion: unlessVersion},
	})
}

// state makes a call whose answer is the server's state.
func (e *Engine) state(ctx context.Context, m *request) (lockkeeper.ServerState, error) {
	cl, err := e.call(ctx, m)
	if err != nil {
		return lockkeeper.ServerState{}, err
	}
	defer cl.free()
	if cl.about == nil {
		return lockkeeper.ServerState{}, unavailable(errAnswer)
	}
	return cl.about.Read(), nil
}

// Trace makes every request name the span that parent returns, in the format of W3C Trace Context, so
// that the server's spans belong to the caller's trace; "" is none. Call it before any other method.
func (e *Engine) Trace(parent func(context.Context) string) { e.parent = parent }

// traceparent returns the span of a request.
func (e *Engine) traceparent(ctx context.Context) string {
	if e.parent == nil {
		return ""
	}
	return e.parent(ctx)
}
