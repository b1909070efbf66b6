package interleave

// knobs are constants of the code under test that a program may change.
var knobs = map[string]*int{}

// Knob registers a constant of the code under test for [World.Set].
func Knob(name string, number *int) { knobs[name] = number }

// Set sets a knob.
func (w *World) Set(knob string, to int) {
	number := knobs[knob]
	if number == nil {
		w.fail("the code under test has no knob %s", knob)
	}
	*number = to
}
