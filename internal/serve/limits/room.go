package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lockkeeper/lockkeeper"
)

// RoomTime is how long a frame waits for room before the server refuses it.
const RoomTime = time.Second

// A room is a number of bytes. Waiters get bytes in the order of their arrival.
type room struct {
	*semaphore.Weighted
	size int
}

func newRoom(size int) *room { return &room{semaphore.NewWeighted(int64(size)), size} }

// TakeRoom takes n bytes for arriving frames: first from the identity's share, then from the room
// of all identities. So a waiter for its own share blocks no other identity. TakeRoom waits for at
// most RoomTime, and then refuses with ErrUnavailable. GiveRoom gives the bytes back.
func (i *Identity) TakeRoom(ctx context.Context, n int) error {
	if i.frames.TryAcquire(int64(n)) {
		if i.ledger.frames.TryAcquire(int64(n)) {
			return nil
		}
		i.frames.Release(int64(n))
	}
	waiting, cancel := context.WithTimeout(ctx, RoomTime)
	defer cancel()
	err := i.frames.Acquire(waiting, int64(n))
	full := i.frames.size
	if err == nil {
		if err = i.ledger.frames.Acquire(waiting, int64(n)); err != nil {
			i.frames.Release(int64(n))
			full = i.ledger.frames.size
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
		"frames on their way to this server take up all of %d MiB for longer than %s: "+
			"send smaller ones, or try again", full>>20, RoomTime)}
}

// GiveRoom is the reverse of TakeRoom.
func (i *Identity) GiveRoom(n int) {
	i.ledger.frames.Release(int64(n))
	i.frames.Release(int64(n))
}
