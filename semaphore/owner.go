package semaphore

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Owner stands for whoever holds slots: a request, a connection, a job. Its end
// frees what it still holds, of whatever manager, each slot once; and it gets none
// afterwards. An owner is for one use: who begins anew makes another one, with
// [NewOwner]. All methods are safe for concurrent use.
//
// The end stops nobody: who goes on working with slots of an owner that has
// ended has to be told by its context, or otherwise.
type Owner struct {
	ctx     context.Context
	unwatch func() bool // ends the wait for ctx; nil if there is none

	mu    sync.Mutex // before that of a shard; nobody else's code runs under it
	ended bool       // once set, nothing comes into slots
	slots []*Slot    // all that are held, and some that were
}

// NewOwner makes an owner that ends when ctx is done, or with Close, or with the
// function given to Do, whichever is first. Once ctx is done the owner gets
// nothing more, and what it holds is free a moment later: a goroutine sees to it.
// A context that lives on keeps its owners in memory until they are closed.
func NewOwner(ctx context.Context) *Owner {
	if ctx == nil {
		panic("canal: NewOwner with a nil context")
	}
	o := &Owner{ctx: ctx}
	if ctx.Done() != nil {
		o.unwatch = context.AfterFunc(ctx, o.end)
	}
	return o
}

// Close ends the owner. When it returns, all that the owner held is free, also
// what was being released at that moment. Further calls do nothing.
func (o *Owner) Close() {
	if o.unwatch != nil {
		o.unwatch()
	}
	o.end()
}

// Do calls fn and then ends the owner, also if fn panics or calls
// runtime.Goexit. It returns what fn returns, or [ErrOwnerEnded] without calling
// it if the owner has ended.
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

func (o *Owner) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, s := range o.slots {
		s.end()
	}
	o.slots = nil
}

// own takes slots and notes that they are the owner's, as one step for its end.
// An owner that has ended takes none, not even for a moment. Nothing is allocated
// for who is refused.
func (o *Owner) own(take func() (grant, error)) (*Slot, error) {
	// A context may be done a moment before it says so to the owner. It is asked
	// before mu is locked, since it may be of a type that locks what whoever closes
	// the owner has locked.
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
	o.note(s)
	return s, nil
}

// note adds a slot to the owner's. When the list is full, those that are settled
// leave it, and it gets room for twice the rest: so a walk over the list is paid
// for by the notes before it, and the list is at most twice as long as what was
// held at one time, or 4. mu is held.
func (o *Owner) note(s *Slot) {
	if len(o.slots) == cap(o.slots) {
		o.slots = slices.DeleteFunc(o.slots, (*Slot).settled)
		if room := max(2*len(o.slots), 4); room != cap(o.slots) {
			o.slots = append(make([]*Slot, 0, room), o.slots...)
		}
	}
	o.slots = append(o.slots, s)
}
