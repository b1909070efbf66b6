package transactions

import (
	"context"
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Run runs the transaction and returns the result of its last step. It fails with the error of a
// step, with the error of a claim that was not granted, with what OnLoss decides, or with the cause
// of the end of ctx. Run does not bound how often a transaction loses its lock: OnLoss does.
func Run[T any](ctx context.Context, client *lockkeeper.Client, tx Transaction[T]) (T, error) {
	var none T
	r := &run[T]{client: client, tx: tx, requests: slices.Clone(tx.Requests), value: tx.Start}
	for {
		loss, err := r.attempt(ctx)
		switch {
		case err != nil:
			return none, err
		case loss == nil:
			return r.value, nil
		}
		if err := r.decide(loss); err != nil {
			return none, err
		}
	}
}

// run is the state of a transaction.
type run[T any] struct {
	client   *lockkeeper.Client
	tx       Transaction[T]
	requests []lockkeeper.Request // of the next claim
	done     int                  // steps that are done
	value    T                    // the result of the last one
}

// attempt acquires the lock and does the steps that are not done. It returns the loss if the lock was
// lost or yielded before that. The lock is released when attempt returns.
func (r *run[T]) attempt(ctx context.Context) (loss, err error) {
	hold, err := r.client.Acquire(ctx, r.requests...)
	if err != nil {
		return nil, err
	}
	// A release that fails is no failure of the steps: the client repeats it, and the TTL bounds it.
	defer hold.Close()
	nested := encloses(ctx, hold.Ref())
	inside, cancel := context.WithCancelCause(within(hold.Context(), hold.Ref()))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	for first := true; r.done < len(r.tx.Steps); first = false {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !first && !nested {
			if loss := yields(hold); loss != nil {
				return loss, nil
			}
		}
		value, failed := r.tx.Steps[r.done](inside, hold, r.value)
		switch over := hold.Err(); {
		case errors.Is(over, lockkeeper.ErrLost):
			return over, nil // whatever the step returned: nobody knows when it lost the lock
		case failed != nil:
			return nil, failed
		case over != nil:
			return nil, over // the step released the hold, or the client is closed
		}
		r.value, r.done = value, r.done+1
	}
	return nil, nil
}

// yields returns the loss if the holder is asked to yield; else nil.
func yields(hold *lockkeeper.Hold) error {
	asked := hold.Asked()
	if asked == nil {
		return nil
	}
	return &lockkeeper.Error{
		Op:     "transaction",
		Path:   hold.Grants()[0].Path,
		Err:    lockkeeper.ErrLost,
		Reason: asked.Reason,
		Detail: "it yielded between two steps",
	}
}

// decide prepares the next attempt as OnLoss says, or returns the error of the transaction.
func (r *run[T]) decide(loss error) error {
	decision := Reject[T](nil)
	if r.tx.OnLoss != nil {
		decision = r.tx.OnLoss(loss)
	}
	switch decision.what {
	case resume:
	case restart:
		r.done, r.value = 0, r.tx.Start
	case replace:
		if decision.with.Requests != nil {
			r.requests = slices.Clone(decision.with.Requests)
		}
		r.tx, r.done, r.value = decision.with, 0, decision.with.Start
	case reject:
		if decision.err != nil {
			return decision.err
		}
		return loss
	default:
		return ErrUndecided
	}
	r.requests = append(r.requests, decision.requests...)
	return nil
}

// chain is the claims whose transactions enclose a context, the innermost first.
type chain struct {
	ref lockkeeper.Ref
	up  *chain
}

type chainKey struct{}

func within(ctx context.Context, ref lockkeeper.Ref) context.Context {
	up, _ := ctx.Value(chainKey{}).(*chain)
	return context.WithValue(ctx, chainKey{}, &chain{ref, up})
}

// encloses reports whether ctx is that of a step under the claim.
func encloses(ctx context.Context, ref lockkeeper.Ref) bool {
	for c, _ := ctx.Value(chainKey{}).(*chain); c != nil; c = c.up {
		if c.ref == ref {
			return true
		}
	}
	return false
}
