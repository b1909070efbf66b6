package disklock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// restartTTL returns the TTL of a dead session, which lasts for many lives of the engine.
func restartTTL() time.Duration { return testmode.Pick(3*time.Second, time.Minute) }

// lifeTime is how long each process of these tests lives.
const lifeTime = 2 * time.Second

// TestDeadSessionEndsThoughItRestarts: what a dead client held is free when its TTL and 2 s have
// passed for the engine, also if that dies every 2 s and nobody else comes (R19, P6).
func TestDeadSessionEndsThoughItRestarts(t *testing.T) {
	for _, ttl := range []time.Duration{3 * time.Second, 30 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openHere(t, t.TempDir(), options{careless: true})
				holdForever(t, e, ttl)
				lived := time.Duration(0)
				for {
					image := crash(t, e)
					e.Close()
					e = openHere(t, image, options{careless: true})
					ctx, cancel := context.WithTimeout(t.Context(), lifeTime)
					left, err := heldFor(ctx, e)
					cancel()
					if err != nil {
						t.Fatal(err)
					}
					if lived += left; left < lifeTime || lived > ttl+lifeTime {
						break
					}
				}
				e.Close()
				if lived < ttl || lived > ttl+2*time.Second {
					t.Errorf("a dead session with a TTL of %s ended after %s of the engine", ttl, lived)
				}
			})
		})
	}
}

// holdForever attaches a session and has it hold a path.
func holdForever(t *testing.T, e lockkeeper.Engine, ttl time.Duration) {
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "dead", TTL: ttl}, func([]lockkeeper.Status) {})
	if err != nil {
		t.Fatal(err)
	}
	w := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
	if st, err := e.Claim(t.Context(), lease.Key, w); err != nil || st.State != lockkeeper.Held {
		t.Fatalf("%v, %v", st.State, err)
	}
}

// heldFor waits until nothing is held any more, or ctx ends, and returns how long that took.
func heldFor(ctx context.Context, e lockkeeper.Engine) (time.Duration, error) {
	began := time.Now()
	held := false
	for st, err := range e.List(ctx, lockkeeper.Query{}) {
		if err != nil {
			return 0, err
		}
		held = held || st.State == lockkeeper.Held
	}
	if !held {
		return 0, nil
	}
	for st, err := range e.List(ctx, lockkeeper.Query{Follow: true}) {
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return 0, err
		}
		if st.State == lockkeeper.Ended {
			break
		}
	}
	return time.Since(began), nil
}

// playHeld opens the directory, and says when nothing is held in it any more.
func playHeld(args []string) error {
	e, err := Open(context.Background(), args[0])
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := heldFor(context.Background(), e); err != nil {
		return err
	}
	fmt.Println("free")
	select {}
}

// TestDeadSessionEndsThoughTheProcessIsKilled is the same with processes that are killed. Each life may
// lose the time since the journal last recorded it, which is a second at most (R19).
func TestDeadSessionEndsThoughTheProcessIsKilled(t *testing.T) {
	dir, ttl := t.TempDir(), restartTTL()
	e := openHere(t, dir, options{})
	holdForever(t, e, ttl)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	lived, starts, lost := time.Duration(0), time.Duration(0), time.Duration(0)
	for ; lived <= ttl+lifeTime+lost; lost += time.Second {
		started := time.Now()
		p := roles.Start(t, "held", dir)
		p.Read("open")
		began := time.Now()
		kill := time.AfterFunc(lifeTime, p.Kill)
		word, _ := p.ReadLine()
		kill.Stop()
		p.Kill()
		starts += began.Sub(started)
		if lived += time.Since(began); word == "free" {
			t.Logf("free after %s of the engine, with a TTL of %s", lived, ttl)
			if lived+starts < ttl { // the engine may have been open for a part of that
				t.Errorf("that was too early")
			}
			return
		}
	}
	t.Errorf("after %s of the engine, a dead session with a TTL of %s is still there", lived, ttl)
}
