package canal_test

import (
	"errors"
	"testing"

	"github.com/lockkeeper/lockkeeper/canal"
)

// step is one request of a caller who sees some resources with some slots each.
type step struct {
	release int // the number of the slot to release, counted from 1 as they were acquired; 0: acquire
	limit   int
	want    int // the ordinal; 0: full
}

// TestOneCaller is a session of one caller whose view of the limit changes.
func TestOneCaller(t *testing.T) {
	for name, steps := range map[string][]step{
		"T0.1 three, then six, then three": {
			{limit: 3, want: 1}, {limit: 3, want: 2}, {limit: 3, want: 3}, {limit: 3},
			{limit: 6, want: 4}, {limit: 3}, {release: 1}, {limit: 3}, {release: 2}, {limit: 3, want: 3}, {limit: 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := canal.New[string]()
			var slots []*canal.Slot
			for i, s := range steps {
				if s.release > 0 {
					if err := slots[s.release-1].Release(); err != nil {
						t.Fatalf("step %d: %v", i+1, err)
					}
					continue
				}
				slot, err := m.TryAcquire("db", s.limit)
				if s.want == 0 {
					if !errors.Is(err, canal.ErrFull) {
						t.Fatalf("step %d: %v, want full", i+1, err)
					}
					continue
				}
				if err != nil || slot.Ordinal() != s.want {
					t.Fatalf("step %d: ordinal %d, %v; want %d", i+1, slot.Ordinal(), err, s.want)
				}
				slots = append(slots, slot)
			}
		})
	}
}
