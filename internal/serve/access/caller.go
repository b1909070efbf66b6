package access

import "context"

// A Caller is an authenticated client, as an engine learns of it that decides by itself what identities
// may do.
type Caller struct {
	Name string // of the identity
	From string // the address

	// Undecided: the gate has left the decision to the engine (Policy.Elsewhere). An engine that decides nothing then
	// refuses the call: this gate has not learned yet that it should decide.
	Undecided bool
}

type callerKey struct{}

// WithCaller returns a context of a call that c makes.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the call with that context; the zero Caller if no gate with
// Options.Callers authenticated anybody.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// as returns the context of a call of the engine, under the rights by which the gate has admitted the call.
func (e *guarded) as(ctx context.Context, r *rights) context.Context {
	if name := e.pass.Name(); name != "" && e.pass.admission.gate.options.Callers {
		return WithCaller(ctx, Caller{Name: name, From: e.pass.from, Undecided: r.elsewhere})
	}
	return ctx
}
