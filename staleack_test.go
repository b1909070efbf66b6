package lockkeeper

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// forgetful is an engine whose session is new with every Attach: its leases are counted from 1 again.
type forgetful struct {
	Engine
	epoch uint64
}

const manyLeases = 1000

func (e *forgetful) Guarantees() Guarantees { return Guarantees{Name: "forgetful", Reach: OnNetwork} }

func (e *forgetful) Attach(_ context.Context, s Session, _ func([]Status)) (Lease, error) {
	e.epoch++
	return Lease{Key: Key{Session: s.ID, Epoch: e.epoch}, TTL: s.TTL, Number: 1}, nil
}

func (e *forgetful) Renew(_ context.Context, k Key) (Lease, error) {
	return Lease{Key: k, TTL: time.Hour, Number: manyLeases}, nil
}

func (e *forgetful) End(context.Context, Key, Ending) error { return nil }
func (e *forgetful) Close() error                           { return nil }

// TestKeyNeverStatesLeasesOfAnEarlierSession: no key of a new session acknowledges leases that only the
// session before it had (R12), also while the answer to its Attach is applied.
func TestKeyNeverStatesLeasesOfAnEarlierSession(t *testing.T) {
	c := New(&forgetful{}, SessionTTL(time.Hour))
	defer c.Close()
	var renewed, wrong atomic.Uint64 // epochs
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !stop.Load() {
			k, attached := c.currentKey()
			if attached && k.Acked == manyLeases && renewed.Load() < k.Epoch {
				wrong.Store(k.Epoch)
			}
		}
	}()
	for range 20_000 {
		k, err := c.attached(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		renewed.Store(k.Epoch)
		c.renew()
		c.detach(k)
	}
	stop.Store(true)
	<-stopped
	if epoch := wrong.Load(); epoch != 0 {
		t.Errorf("a key of epoch %d acknowledged lease %d before there was one", epoch, manyLeases)
	}
}
