package canalsteps

// A semaphore of one counter, in which who is refused leaves a mark: the counter
// goes to limit+1 and no further. Who releases takes 1 out, and 1 more if that has
// only taken out the mark. It works as long as all have the same limit.

func plantMarker(a *algorithm) {
	a[acquireFind] = glue("acquire", func(t *turn) { t.to(planted1) })
	a[planted1] = visible("acquire", (*turn).markerUp)
	a[releaseSwap] = visible("release", (*turn).markerRelease)
	a[planted2] = visible("release", (*turn).markerDown)
}

func (t *turn) markerUp() {
	n := &t.s.buckets[0]
	*n = min(*n+1, int8(t.limit())+1)
	if int(*n) <= t.limit() {
		t.say("makes the counter %d: granted slot %d", int(*n), int(t.call().slot))
		t.grant(int(*n))
		t.w.answer = granted
	} else {
		t.say("makes the counter %d: full", int(*n))
		t.refuse()
		t.w.answer = full
	}
	t.answered()
}

func (t *turn) markerRelease() {
	if t.s.truth[t.call().slot] != reallyHeld {
		t.say("has no slot")
		t.finish()
		return
	}
	t.free(t.call().slot)
	t.markerDown()
}

func (t *turn) markerDown() {
	n := &t.s.buckets[0]
	*n--
	t.say("takes 1 out of the counter, which makes it %d", int(*n))
	if *n == int8(t.asked[t.call().slot].limit) {
		t.to(planted2)
		return
	}
	t.finish()
}
