package sqllock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// At the limit of freezes another one is refused, but the repetition of an earlier freeze is
// answered as before.
func TestRoomForFreezes(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		m := join(t, openEngine(t, url), "a", cutTTL)
		freeze := func(id uint64) (lockkeeper.Status, error) {
			var paths []string
			for i := range lockkeeper.MaxTargets {
				paths = append(paths, fmt.Sprintf("p%d/%d", id, i))
			}
			w := exclusive(id, 0, paths...)
			w.Freeze = time.Hour
			// On a busy computer a transaction may be idle for longer than the database allows. Then the
			// outcome is unknown, and a client asks again.
			for ctx := bounded(t); ; {
				st, err := m.Claim(ctx, m.key, w)
				if !errors.Is(err, lockkeeper.ErrUnavailable) || ctx.Err() != nil {
					return st, err
				}
			}
		}
		full := uint64(table.MaxFreezes / lockkeeper.MaxTargets)
		for id := uint64(1); id <= full; id++ {
			if _, err := freeze(id); err != nil {
				t.Fatalf("freeze %d: %v", id, err)
			}
		}
		if _, err := freeze(full + 1); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("one freeze too many: %v, want denied", err)
		}
		if st, err := freeze(full); err != nil || st.State != lockkeeper.Freezing {
			t.Errorf("the last one once more: %s, %v", st.State, err)
		}
	})
}
