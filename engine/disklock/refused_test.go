package disklock

import (
	"errors"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// TestRefusedCommandsAreAcknowledged: what a key states with a refused command counts, so it is in the
// journal too: what comes after can be replayed.
func TestRefusedCommandsAreAcknowledged(t *testing.T) {
	dir := t.TempDir()
	e := openHere(t, dir, options{careless: true})
	a := attachTo(t, e, "ann")
	a.hold("db")
	key := a.key
	key.LowestOpen, key.Acked = 10, 1
	nothing := lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "nothing/frozen"}
	if err := e.End(t.Context(), key, nothing); !errors.Is(err, lockkeeper.ErrNotHeld) {
		t.Fatal(err)
	}
	if err := a.release(5); err != nil { // below what is answered, so it is over
		t.Errorf("a release of what is over: %v", err)
	}
	a.id = 10
	a.hold("x")
	died := image{files: readFolder(t, dir)}
	e.Close()
	again := openHere(t, died.put(t, t.TempDir()).path, options{careless: true})
	again.Close()
}
