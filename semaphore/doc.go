// Package canal keeps semaphores for one process: thousands and thousands of
// keys, each with a number of slots that may change at any moment, also while
// slots are held. It never waits for a slot, and an acquire with its release costs
// little more than to find a mutex by a key and to lock it.
//
// Say an application runs on some machines, and each of them bears three requests
// at once. Whoever has a request to send knows how many machines there are, and so
// how many slots there are for now:
//
//	slots := semaphore.New[string]()
//
//	slot, err := slots.TryAcquire(application, 3*machines)
//	if errors.Is(err, semaphore.ErrFull) {
//		return tooBusy
//	}
//	if err != nil {
//		return err
//	}
//	defer slot.Release()
//
// # There is no Resize
//
// A limit that is kept somewhere has to be changed there, in step with all who use
// it, and somebody always works by the old one. Here nobody keeps it. The caller
// brings the limit that it knows with each request, and gets a slot if fewer are in
// use. Callers with different views get along: with four slots in use, one who
// knows of six gets the fifth, while one who knows of three is told [ErrFull].
//
// So growing takes effect with the first caller who knows of it, and shrinking too.
// Nobody who holds a slot loses it; callers with the smaller view wait until enough
// of those with the larger one have released. A release needs no limit: it lowers
// the number in use by one, whatever anybody's view is.
//
// What is promised for each key, at every moment: no acquire is granted beyond its
// own limit (never over), and none is refused within it (never under): a slot is
// in use until the Release or Close that frees it has returned, at the latest. A
// refused attempt leaves nothing behind, so no sequence of refusals, releases and
// changing views can make a slot unusable (never stuck).
//
// # Who holds
//
// A slot is held by whoever has the [Slot]. Its Release works once; after that it
// returns [ErrNotHeld] and changes nothing. Nobody can free what another one holds.
//
// If somebody may fail before they release, let an [Owner] hold the slots, which
// ends with a context, with Close, or with a function.
//
//	owner := semaphore.NewOwner(r.Context())
//	defer owner.Close()
//	slot, err := slots.TryAcquireFor(owner, application, 1, 3*machines)
//
// When the owner ends, all that it still holds becomes free, each slot once, also
// what is being released at that moment: at once with Close, and a moment after
// its context is done.
//
// # What it does not do
//
// There is no queue and no waiting, so there is no order among those who try again,
// and one who wants many slots can starve among those who want one. There is no
// bound on how long a slot is held, no hierarchy, and nothing that survives the
// process. For these, there is the Client of package lockkeeper. A Slot that is
// neither released nor had by an owner that ends is lost.
//
// # What it costs
//
// Acquiring finds the key in a hash table without a lock, and takes the slot by one
// compare-and-swap. An attempt that is refused because others hold the slots writes
// nothing, so any number of them can go on beside each other. A release is one compare-and-swap in
// memory of the holder's
// own and one addition. No goroutine, timer or channel is kept for a key, and a
// [Slot] that stays in its function is not even allocated.
//
// A key comes with its first slot and goes with its last one. Some are kept for
// their next use while they are idle: 1,024 at most for each core, rounded up to a
// power of two, and never more than 16,384. These take 130 bytes each at most,
// beside their own text, and so does a key in use.
//
// Many cores that are busy with one key pass its counter from one to the other; no
// exact count can do without. They do not disturb those with other keys.
package semaphore
