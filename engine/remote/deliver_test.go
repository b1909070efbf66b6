package remote

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// The answers of a frame reach their calls: the second answer to a call does nothing, and an answer
// that is no answer ends the connection after those before it.
func TestFrameOfManyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		first, firstEnd := p.start(t.Context())
		second, secondEnd := p.start(t.Context())
		third, thirdEnd := p.start(t.Context())
		refusal := wire.NewError(&lockkeeper.Error{Err: lockkeeper.ErrSession})
		p.send(encoded(&wire.ServerFrame{Replies: []*wire.Reply{
			{Call: first},
			{Call: first, Error: refusal},
			{Call: second, Error: refusal},
			{Call: third, More: true, Lease: &wire.Lease{Claims: []*wire.Status{{Id: 1}}}},
		}}))
		if err := <-firstEnd; err != nil {
			t.Errorf("the call with two answers: %v", err)
		}
		if err := <-secondEnd; !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("the call that was refused: %v", err)
		}
		synctest.Wait()
		p.send([]byte{4, 2<<3 | 2, 2, 4<<3 | 2, 9}) // a frame whose answer is longer than the frame
		if err := <-thirdEnd; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("the open call: %v", err)
		}
	})
}

// An answer whose content is damaged ends the connection, as a damaged frame does. The other answers of the
// frame reach their calls.
func TestDamagedAnswerEndsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		first, firstEnd := p.start(t.Context())
		second, secondEnd := p.start(t.Context())
		_, openEnd := p.start(t.Context())
		damaged := binary.AppendUvarint([]byte{1 << 3}, first)
		damaged = append(damaged, 3<<3|2, 2, 6<<3|2, 9) // a lease with an element that is longer than it
		sound := binary.AppendUvarint([]byte{1 << 3}, second)
		frame := append([]byte{2<<3 | 2, byte(len(damaged))}, damaged...)
		frame = append(append(frame, 2<<3|2, byte(len(sound))), sound...)
		sent := time.Now()
		p.send(append([]byte{byte(len(frame))}, frame...))
		if err := <-firstEnd; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("the call with a damaged answer: %v", err)
		}
		if err := <-secondEnd; err != nil {
			t.Errorf("the other call of the frame: %v", err)
		}
		if err := <-openEnd; !errors.Is(err, lockkeeper.ErrUnavailable) || time.Since(sent) > 0 {
			t.Errorf("the open call after %s: %v", time.Since(sent), err)
		}
	})
}

// Pieces of a lease in one frame make one, and the frame's other answers find their calls.
func TestPiecesOfLeaseInOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		type result struct {
			lease lockkeeper.Lease
			err   error
		}
		renewed := make(chan result, 1)
		go func() {
			lease, err := p.engine.Renew(t.Context(), lockkeeper.Key{Session: "s", Epoch: 1})
			renewed <- result{lease, err}
		}()
		renewal := p.request().GetCall()
		other, otherEnd := p.start(t.Context())
		f := &wire.ServerFrame{}
		for id := range uint64(3) {
			lease := &wire.Lease{Epoch: 1, Ttl: int64(time.Minute), Claims: []*wire.Status{{Id: id + 1}}}
			f.Replies = append(f.Replies, &wire.Reply{Call: renewal, Lease: lease, More: id < 2})
			if id == 1 {
				f.Replies = append(f.Replies, &wire.Reply{Call: other})
			}
		}
		p.send(encoded(f))
		if err := <-otherEnd; err != nil {
			t.Error(err)
		}
		if r := <-renewed; r.err != nil || len(r.lease.Claims) != 3 || r.lease.Claims[2].Ref.ID != 3 {
			t.Errorf("a lease in pieces: %+v", r)
		}
	})
}
