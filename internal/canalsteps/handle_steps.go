package canalsteps

// These stand for handle.go; pin and unpin are in shard_steps.go.

// handleLetGo is where the last use of a handle is over, which runtime.KeepAlive
// tells the garbage collector: its cleanup may run from now on.
func (t *turn) handleLetGo() {
	t.s.handles[t.call().handle].letGo = true
	t.say("does not need the handle any more")
	t.finish()
}

func (t *turn) handleHeld() {
	count := int(t.s.entries[t.s.handles[t.call().handle].entry].count)
	t.say("sees %d in use", count)
	t.reports(t.call().key, count)
	t.finish()
}
