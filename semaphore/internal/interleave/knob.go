package interleave

// knobs are numbers of the code under test that a program may choose.
var knobs = map[string]*int{}

// Knob makes a number known that is a constant in the code under test, and that
// a program may choose by [World.Set].
func Knob(name string, number *int) { knobs[name] = number }

// Set chooses a number of the code under test.
func (w *World) Set(knob string, to int) {
	number := knobs[knob]
	if number == nil {
		w.fail("the code under test has no knob %s", knob)
	}
	*number = to
}
