// Package enginetest is the conformance suite for engines. An engine author calls it from a test:
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, enginetest.Harness{
//			Fresh: func(t *testing.T) enginetest.Open {
//				dir := t.TempDir()
//				return func() lockkeeper.Engine { return myengine.Open(dir) }
//			},
//		})
//	}
//
//	func TestStress(t *testing.T) { enginetest.Stress(t, harness) }
//
// # What it tests
//
// [Run] checks every rule (R1 to R20, see package table) and every acceptance case (docs/cases.md),
// through the Engine interface and through the Client. It reads the engine's Features:
//
//   - if the engine claims a feature, the checks of the feature must pass;
//   - otherwise Run skips them, and the engine must refuse a request that needs the feature with
//     ErrUnsupported and change nothing.
//
// [Stress] runs many clients with random requests, lost and duplicated messages, and connections
// that fail for shorter and longer than a TTL. Afterwards every path must become free.
//
// Both record what every client observed, and package history judges the record: exclusion,
// permits, fences, order, answers, and linearizability.
//
// # The harness
//
// A [Harness] opens the engine under test. Fresh is required; the other fields say what the
// environment of the engine allows:
//
//	Fresh    a new state, and a function that opens handles on it
//	Many     several handles on one state, as from several processes
//	Bubble   the engine runs in the fake time of testing/synctest
//	Restart  the engine ends as in a crash and opens the same state again
//	Calm     ends injected faults, for the end of Stress
//	Skip     checks that no engine could pass in this environment, with the reason
//
// # Names and time
//
// A subtest is named for its rule, case or known flaw, for example R12/… or T3/…. In a bubble the
// suite takes seconds of fake time. Without one it runs many checks at once in real time, on
// sessions with TTLs of a few seconds. A check that fails after the process stood still for a quarter
// of a second begins again with doubled TTLs, five times at most; what package history says of the
// abandoned attempt still counts.
//
// Mutants test the suite itself: each is memlock with one fault, which the suite must find.
package enginetest
