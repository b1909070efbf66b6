package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/memory"
)

// The engine reports how long holders take to release when they are asked, not what it takes itself.
func TestHandshakesOfStealsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := memory.New(3, 1)
		holders, thieves := openInMemory(t, set), openInMemory(t, set)
		var reported []time.Duration
		thieves.ReportHandshakes(func(took time.Duration) { reported = append(reported, took) })
		low, high := lockkeeper.New(holders), lockkeeper.New(thieves)
		defer low.Close()
		defer high.Close()
		steal := func(yields time.Duration) {
			hold, err := low.Lock(t.Context(), "db")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-hold.YieldAsked()
				time.Sleep(yields)
				hold.Release(t.Context())
			}()
			next, err := high.Lock(t.Context(), "db", lockkeeper.WithPriority(1),
				lockkeeper.WithStealAfter(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			next.Release(t.Context())
			synctest.Wait()
		}
		steal(2 * time.Second)
		steal(20 * time.Second) // it is taken from the holder before
		if len(reported) != 1 || reported[0].Round(100*time.Millisecond) != 2*time.Second {
			t.Errorf("reported %v, want one handshake of 2s", reported)
		}
		time.Sleep(20 * time.Second)
	})
}
