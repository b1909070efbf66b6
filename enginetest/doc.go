// Package enginetest is what every engine must pass: [Run] tests each rule that
// the engine claims, through the Engine interface and through the Client, and
// that what it does not claim is refused; [Stress] keeps many clients busy at
// random. What happened in between is recorded, and judged by package history.
//
// An engine calls both from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, enginetest.Harness{
//			Fresh: func(t *testing.T) enginetest.Open { … },
//		})
//	}
//
// Subtests are named after the rule, the acceptance case or the known flaw that
// they are about; docs/cases.md lists them.
package enginetest
