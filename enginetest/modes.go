package enginetest

import (
	"github.com/lockkeeper/lockkeeper"
)

// R2 and R3: the compatibility tables of modes. A row is a held mode, a column a requested one, in the
// order X, S, P.
var (
	samePath = [3]string{
		"...",
		".S.",
		"..P", // permits conflict only by their limit
	}
	// The row's path is above the column's.
	heldAbove = [3]string{
		"...",
		".S.",
		"XSP",
	}
	// The row's path is below the column's.
	heldBelow = [3]string{
		"..P",
		".SP",
		"..P",
	}
	siblings = [3]string{
		"XSP",
		"XSP",
		"XSP",
	}
)

// ofMode returns a target with the mode of that letter.
func ofMode(letter byte, path string) lockkeeper.Target {
	switch letter {
	case 'X':
		return exclusive(path)
	case 'S':
		return shared(path)
	}
	return permits(path, 1, 5)
}

var modeChecks = []check{
	{"R2/modes of one path", 0, func(w *world) { w.modeTable("one", "one", samePath) }},
	{"R3/below a hold", trees, func(w *world) { w.modeTable("top", "top/in/between/leaf", heldAbove) }},
	{"R3/above a hold", trees, func(w *world) { w.modeTable("top/in/between/leaf", "top", heldBelow) }},
	{"R3/beside a hold", trees, func(w *world) { w.modeTable("top/a", "top/b", siblings) }},
	{"R3/one claim merges with itself", trees | many, func(w *world) {
		p, other := w.peer("one"), w.peer("two")
		p.hold(exclusive("db"), exclusive("db/1"), exclusive("db/1/x"))
		other.refused(exclusive("db/1/x"))
		p.release(p.last)
		if w.claims(lockkeeper.FeatureShared) {
			p.hold(shared("db"), exclusive("db/1"))
			other.hold(shared("db/2"))
			other.refused(shared("db/1"))
			other.refused(exclusive("db/2"))
		}
	}},
	{"R2/strangers of one session", 0, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		p.refused(exclusive("db"))
	}},
}

// modeTable holds one path in each mode, and requests the other in each mode.
func (w *world) modeTable(heldPath, triedPath string, table [3]string) {
	const letters = "XSP"
	for row, held := range letters {
		for column, tried := range letters {
			a, b := ofMode(byte(held), heldPath), ofMode(byte(tried), triedPath)
			want := lockkeeper.Want{Targets: []lockkeeper.Target{a, b}}
			if needs := want.Features() &^ lockkeeper.FeatureManyTargets; !w.claims(needs) {
				continue
			}
			one, two := w.peer("one"), w.peer("two")
			one.hold(a)
			s := two.ask(lockkeeper.Want{Targets: []lockkeeper.Target{b}})
			if compatible := table[row][column] != '.'; compatible != (s.State == lockkeeper.Held) {
				w.Errorf("%s while %s is held: %s, want %s", b, a, s.State,
					map[bool]string{true: "held", false: "ended"}[compatible])
			}
			one.leave()
			if s.State == lockkeeper.Ended {
				two.hold(b) // without a it is free again
			}
			two.leave()
		}
	}
	if w.Failed() {
		w.Logf("held %s, tried %s", heldPath, triedPath)
	}
}
