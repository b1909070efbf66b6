package lockkeeper_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A database may lose its last commits by a failover. Then a lease says less than the client knew when it asked for
// it, and that counts. A late hint says nothing.
func TestHoldThatTheEngineForgotIsLost(t *testing.T) {
	for name, was := range map[string]func(st *lockkeeper.Status){
		"it waits": func(st *lockkeeper.Status) { st.State, st.Fence = lockkeeper.Waiting, 0 },
		"it is shared": func(st *lockkeeper.Status) {
			st.Grants = slices.Clone(st.Grants)
			st.Grants[0].Mode = lockkeeper.ModeShared
		},
		"it is held": func(*lockkeeper.Status) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				h := must(t)(c.Lock(background, "a"))
				f.change += 100
				f.news(1, false, func(*lockkeeper.Status) {})
				time.Sleep(lockkeeper.DefaultTTL)
				before := f.setBack(1, was)
				f.notify([]lockkeeper.Status{before})
				synctest.Wait()
				if err := h.Err(); err != nil {
					t.Errorf("a late hint: %v", err)
				}
				time.Sleep(lockkeeper.DefaultTTL)
				if name == "it is held" {
					if err := h.Err(); err != nil {
						t.Error(err)
					}
					return
				}
				wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Expired)
				if s := f.state(1); s == lockkeeper.Waiting || s == lockkeeper.Held {
					t.Errorf("the claim is still %s at the engine: %s", s, f.log())
				}
			})
		})
	}
}
