package testmode

import (
	"slices"
	"testing"
	"testing/synctest"
)

func TestReplayNamesPackageTestAndSeed(t *testing.T) {
	t.Run("a (part)", func(t *testing.T) {
		want := `go test ./internal/testmode -run '^TestReplayNamesPackageTestAndSeed$/^a_\(part\)$' -seed=7`
		if Long() {
			want += " -long"
		}
		if got := Replay(t, 7); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestSeedsOfTheClockDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if a, b := fromClock(), fromClock(); a == b || a == 0 || b == 0 {
			t.Errorf("seeds %d and %d, want two that differ", a, b)
		}
	})
}

func TestGivenSeedIsTheOnlyOne(t *testing.T) {
	defer func(before uint64) { *seed = before }(*seed)
	*seed = 0
	if got := slices.Collect(Seeds(t, 3)); len(got) != 3 || got[1] != got[0]+1 || got[2] != got[0]+2 {
		t.Errorf("without -seed: %d, want three consecutive ones", got)
	}
	*seed = 5
	if got := slices.Collect(Seeds(t, 3)); !slices.Equal(got, []uint64{5}) {
		t.Errorf("with -seed=5: %d", got)
	}
	if got := Seed(t); got != 5 {
		t.Errorf("Seed: %d, want 5", got)
	}
}

func TestSeedsOfOneCommitComeAgain(t *testing.T) {
	a, b, c := derived(1, t.Name()), derived(1, t.Name()), derived(2, t.Name()+"'s sibling")
	if a == b || a == c || b == c {
		t.Errorf("seeds %d, %d and %d, want three that differ", a, b, c)
	}
	clear(taken.by)
	if again := derived(1, t.Name()); again != a {
		t.Errorf("the first seed is %d, and %d in another process", a, again)
	}
}
