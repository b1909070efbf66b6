package canalsteps

// A semaphore of buckets, one for each resource, which canal is there to improve
// on. A bucket counts to maxPer, and one more: that marks it as full. Who acquires
// goes from the first bucket to the last one of those that it knows of, and adds 1
// to each until one is not full; a bucket that is marked stays as it is. Who
// releases goes back from the last one and takes 1 out: a bucket that gets below 0
// was empty, so that is undone, and the next one is tried; one that gets to maxPer
// had the mark taken out, so that another 1 has to go. If others put the mark back
// each time, it takes out 2 after some tries, whatever is there then.

const bucketTries = 1

func plantBuckets(a *algorithm) {
	a[acquireFind] = glue("acquire", func(t *turn) { t.to(planted1) })
	a[planted1] = visible("acquire", (*turn).bucketUp)
	a[releaseSwap] = visible("release", (*turn).bucketRelease)
	a[planted2] = visible("release", (*turn).bucketDown)
	a[planted3] = visible("release", (*turn).bucketRepair)
}

func (t *turn) bucketUp() {
	b := &t.s.buckets[t.w.i]
	*b = min(*b+1, int8(t.maxPer)+1)
	t.w.i++
	switch {
	case *b <= int8(t.maxPer):
		t.say("makes bucket %d %d: granted slot %d", int(t.w.i), int(*b), int(t.call().slot))
		t.grant(int(*b))
		t.w.answer = granted
		t.answered()
	case int(t.w.i*t.maxPer) >= t.limit():
		t.say("makes bucket %d %d: full, the last one", int(t.w.i), int(*b))
		t.refuse()
		t.w.answer = full
		t.answered()
	default:
		t.say("makes bucket %d %d: full", int(t.w.i), int(*b))
	}
}

// bucketRelease is the first step of a release. It counts as free from here on, so
// that the design gets the benefit of the doubt.
func (t *turn) bucketRelease() {
	if t.s.truth[t.call().slot] != reallyHeld {
		t.say("has no slot")
		t.finish()
		return
	}
	t.free(t.call().slot)
	t.w.i = t.views
	t.bucketDown()
}

func (t *turn) bucketDown() {
	b := &t.s.buckets[t.w.i-1]
	if t.w.seen > bucketTries {
		*b -= 2
		t.say("takes 2 out of bucket %d, which makes it %d", int(t.w.i), int(*b))
		t.finish()
		return
	}
	*b--
	t.say("takes 1 out of bucket %d, which makes it %d", int(t.w.i), int(*b))
	switch {
	case *b < 0:
		t.to(planted3)
	case *b == int8(t.maxPer):
		t.w.seen++
		t.to(planted2)
	default:
		t.finish()
	}
}

func (t *turn) bucketRepair() {
	t.s.buckets[t.w.i-1]++
	t.say("puts it back, which makes it %d", int(t.s.buckets[t.w.i-1]))
	t.w.i--
	t.w.seen = 0
	if t.w.i == 0 {
		t.finish()
		return
	}
	t.to(planted2)
}
