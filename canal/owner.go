package canal

import (
	"context"
	"slices"
	"sync"
)

// Owner stands for whoever holds slots: a request, a connection, a worker. Its
// end frees what it still holds, of whatever manager, each slot once; and it gets
// none afterwards. All methods are safe for concurrent use.
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
// function given to Do, whichever is first.
func NewOwner(ctx context.Context) *Owner {
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
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if ended || o.ctx.Err() != nil {
		return ErrOwnerEnded
	}
	defer o.Close()
	return fn()
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
		return nil, ErrOwnerEnded
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

// note adds a slot to the owner's. When there is no room, those that are over
// leave first, and the list gets room for as many again as are left: so between
// two such walks there are as many notes as half of what the walk looks at, and
// the list is never longer than twice what was held at one time. mu is held.
func (o *Owner) note(s *Slot) {
	if len(o.slots) == cap(o.slots) {
		o.slots = slices.DeleteFunc(o.slots, (*Slot).over)
		if room := max(2*len(o.slots), 4); room != cap(o.slots) {
			o.slots = append(make([]*Slot, 0, room), o.slots...)
		}
	}
	o.slots = append(o.slots, s)
}
