package sqllock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The database is killed, stopped and frozen for longer than sessions live, under load. Nothing is
// granted twice, fences rise over it, and everything is free soon after each.
func TestDatabaseFailsUnderLoad(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		s := k.own(t)
		failures := []struct {
			name string
			do   func() error
		}{
			{"killed", func() error { return restarted(s.Kill(), s) }},
			{"frozen", func() error { return frozen(t, s, 3*lockkeeper.MinTTL/2) }},
			{"stopped", func() error { return restarted(s.Stop(), s) }},
			{"frozen for a moment", func() error { return frozen(t, s, lockkeeper.MinTTL/3) }},
		}
		url := s.Database(t)
		c := gather(t, testmode.Seed(t), 2*lockkeeper.MinTTL, url, url, url)
		for i := range testmode.Pick(4, 40) {
			failure := failures[i%len(failures)]
			granted(t, c, 20)
			if err := failure.do(); err != nil {
				t.Fatal(err)
			}
			healed := time.Now()
			granted(t, c, 5)
			t.Logf("%s: the next were granted after %s", failure.name, time.Since(healed).Round(time.Millisecond))
			c.Pause()
			if err := stress.CheckFree(quiet{openEngine(t, url)}, longest); err != nil {
				t.Errorf("%s: %v", failure.name, err)
			}
			verdict(t, c)
			c.Resume()
		}
		c.Pause()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func restarted(err error, s *testdb.Server) error {
	if err != nil {
		return err
	}
	return s.Start()
}

// frozen freezes a server for a while.
func frozen(t *testing.T, s *testdb.Server, d time.Duration) error {
	if err := s.Freeze(); err != nil {
		return err
	}
	<-time.After(d)
	return s.Thaw()
}

// granted returns after that many further grants.
func granted(t *testing.T, c *stress.Load, more int64) {
	t.Helper()
	late := time.After(longest)
	for goal := c.Granted.Load() + more; c.Granted.Load() < goal; {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("the crowd was not granted %d more within %s: %v", more, longest, c)
		}
	}
}
