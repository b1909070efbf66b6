package remote

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// About asks how the server is, and whom it takes this client for. ErrInvalid if
// the server is too old to know that question.
func (e *Engine) About(ctx context.Context) (lockkeeper.ServerState, error) {
	return e.state(ctx, &wire.Request{About: true})
}

// Drain has the server take no new claims, and end when nothing is held and nobody
// waits any more; the reason is for people. If the server has the version
// unlessVersion, nothing is done, and the answer says Already; "" is none. It returns
// at once. ErrDenied if the rules do not allow it to this client.
func (e *Engine) Drain(ctx context.Context, reason, unlessVersion string) (lockkeeper.ServerState, error) {
	return e.state(ctx, &wire.Request{Drain: &wire.Drain{Reason: reason, UnlessVersion: unlessVersion}})
}

// state does a call that is answered by how the server is.
func (e *Engine) state(ctx context.Context, m *wire.Request) (lockkeeper.ServerState, error) {
	answer, err := e.call(ctx, m, lockkeeper.Key{}, nil)
	if err != nil {
		return lockkeeper.ServerState{}, err
	}
	if answer.about == nil {
		return lockkeeper.ServerState{}, unavailable(errAnswer)
	}
	return answer.about.Read(), nil
}

// Trace has every request carry the span that it is made in, so that the server's
// work becomes part of its trace: parent returns it as W3C Trace Context writes
// it, "" for none. It is to be called before the engine is used.
func (e *Engine) Trace(parent func(context.Context) string) { e.parent = parent }

// traceparent is the span that a request is made in.
func (e *Engine) traceparent(ctx context.Context) string {
	if e.parent == nil {
		return ""
	}
	return e.parent(ctx)
}
