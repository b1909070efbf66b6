package table

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// TestSearchForDeadlocksCostsOthersNothing: beside a claim that waits inside a hold and a soft one, which
// make ends and grants suspicious, a claim and its release that nobody waits for look at nobody.
func TestSearchForDeadlocksCostsOthersNothing(t *testing.T) {
	tb := New()
	alice, bob := newWorker(t, tb, "alice"), newWorker(t, tb, "bob")
	for i := range 100 {
		bob.claim(0, exclusive(lockkeeper.Path(fmt.Sprintf("o/%d", i))))
	}
	alice.claim(0, exclusive("a/k"))
	alice.want(lockkeeper.Want{WriterPolicy: lockkeeper.Soft, Targets: []lockkeeper.Target{exclusive("a/k")}})
	alice.claim(0, exclusive("a/m"))
	bob.claim(0, exclusive("a/q"))
	alice.want(lockkeeper.Want{Inside: lockkeeper.Ref{Session: "alice", ID: 3},
		Targets: []lockkeeper.Target{exclusive("a/q")}})
	if !tb.endMayDeadlock() {
		t.Fatal("nothing is suspicious")
	}
	for _, target := range []lockkeeper.Target{exclusive("calm"), exclusive("a/x"), permits("a/y", 1, 2)} {
		if n := tb.worked(func() { bob.release(bob.claim(0, target).Ref.ID) }); n > 0 {
			t.Errorf("a claim and release of %s look at %d things", target.Path, n)
		}
	}
	if err := tb.Check(); err != nil {
		t.Error(err)
	}
}
