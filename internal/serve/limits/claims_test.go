package limits

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// claimCounts have what a map would have, also while a loop over them changes the claim at hand.
func TestClaimCountsAreAMap(t *testing.T) {
	for seed := range testmode.Seeds(t, 100) {
		random := rand.New(rand.NewPCG(seed, 0))
		var counts claimCounts
		want := map[uint64]counted{}
		for step := range 50 {
			id, c := uint64(random.IntN(4)), counted{change: uint64(step)}
			switch random.IntN(4) {
			case 0:
				counts.delete(id)
				delete(want, id)
			case 1:
				for id := range counts.all() {
					if id%2 == 0 {
						counts.delete(id)
					} else {
						counts.set(id, c)
						want[id] = c
					}
				}
				maps.DeleteFunc(want, func(id uint64, _ counted) bool { return id%2 == 0 })
			default:
				counts.set(id, c)
				want[id] = c
			}
			got := map[uint64]counted{}
			for id, c := range counts.all() {
				if _, twice := got[id]; twice {
					t.Fatalf("claim %d is counted twice: %s", id, testmode.Replay(t, seed))
				}
				got[id] = c
			}
			same := func(a, b counted) bool { return a.change == b.change }
			c, ok := counts.get(id)
			if _, there := want[id]; ok != there || c.change != want[id].change || counts.len() != len(want) ||
				!maps.EqualFunc(got, want, same) {
				t.Fatalf("%v, %v, want %v: %s", got, c, want, testmode.Replay(t, seed))
			}
		}
	}
}
