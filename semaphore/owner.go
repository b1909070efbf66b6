package semaphore

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Owner holds slots, of any managers, for one request, connection or job. Its end frees the slots
// that it still holds, each exactly once; after that it cannot acquire. A new request needs a new
// owner. All methods are safe for concurrent use.
//
// The end of an owner stops no code. Code that works with the slots has to watch the context.
type Owner struct {
	ctx          context.Context
	stopWatching func() bool // stops the wait for ctx; nil if ctx is never done

	mu    sync.Mutex // taken before shard.mu; no foreign code runs under it
	ended bool       // final; no slot is added once it is set
	slots []*Slot    // all held slots, and some freed ones
}

// NewOwner makes an owner that ends when ctx is done, with Close, or with the function given to Do,
// whichever comes first. Once ctx is done the owner cannot acquire, and a goroutine frees its slots
// shortly after. A context that is not done keeps its owners in memory until they are closed.
func NewOwner(ctx context.Context) *Owner {
	if ctx == nil {
		panic("semaphore: NewOwner with a nil context")
	}
	o := &Owner{ctx: ctx}
	if ctx.Done() != nil {
		o.stopWatching = context.AfterFunc(ctx, o.end)
	}
	return o
}

// Close ends the owner. When it returns, all slots of the owner are free, also those that other
// goroutines were releasing. Further calls have no effect.
func (o *Owner) Close() {
	if o.stopWatching != nil {
		o.stopWatching()
	}
	o.end()
}

// Do calls fn and then ends the owner, also if fn panics or calls runtime.Goexit. It returns the
// result of fn, or [ErrOwnerEnded] without a call of fn if the owner has ended.
func (o *Owner) Do(fn func() error) error {
	if o.ctx.Err() != nil {
		return o.contextEnded()
	}
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if ended {
		return ErrOwnerEnded
	}
	defer o.Close()
	return fn()
}

func (o *Owner) contextEnded() error {
	return fmt.Errorf("%w: %w", ErrOwnerEnded, context.Cause(o.ctx))
}

// end frees all slots under mu, so that a second end does not return before they are free.
func (o *Owner) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, s := range o.slots {
		s.end()
	}
	o.slots = nil
}

// acquire calls take and adds the slot to the owner's in one critical section, so the end of the
// owner sees every granted slot. An owner that has ended takes nothing, not even briefly. A refused
// call allocates nothing.
func (o *Owner) acquire(take func() (grant, error)) (*Slot, error) {
	// A context can be done shortly before its AfterFunc runs. acquire calls Err without mu: Err
	// may be foreign code that locks a mutex, and another goroutine may call Close with that mutex
	// locked.
	if o.ctx.Err() != nil {
		return nil, o.contextEnded()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return nil, ErrOwnerEnded
	}
	g, err := take()
	if err != nil {
		return nil, err
	}
	s := &Slot{owned: true, grant: g}
	o.add(s)
	return s, nil
}

// add adds a slot to the list. When the list is full, add removes the free slots and makes room for
// twice the rest. So the cost per slot is constant, and
//
//	cap(slots) <= max(4, 2 * the most slots held at one time)
//
// The caller has locked mu.
func (o *Owner) add(s *Slot) {
	if len(o.slots) == cap(o.slots) {
		o.slots = slices.DeleteFunc(o.slots, (*Slot).isFree)
		if room := max(2*len(o.slots), 4); room != cap(o.slots) {
			o.slots = append(make([]*Slot, 0, room), o.slots...)
		}
	}
	o.slots = append(o.slots, s)
}
