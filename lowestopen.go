package lockkeeper

// The client states in every key the lowest id with which it may still begin a claim
// (Key.LowestOpen, R16):
//
//	lowestOpen = min(ids that may still be begun, the next new id)
//
// Ids rise in the order in which claims are entered here, before they are sent. An answered claim
// is never begun again: the client amends it, asks about it and ends it, and for all of that the
// engine must know it. Only an engine that lost its memory is asked again for a waiting claim;
// that happens after an Attach, which starts the count again.

// nextID returns the id of a claim that is about to be sent. The caller holds c.mu.
func (c *Client) nextID() uint64 {
	c.ids++
	return c.ids
}

// currentKey returns the key of the session, with what it states now: the lowest open id and the
// latest lease that was processed. It returns false if the session is not attached. It needs no
// lock: an id stays open until the call that begins it returns.
func (c *Client) currentKey() (Key, bool) {
	k := c.key.Load()
	if k == nil {
		return Key{}, false
	}
	now := *k
	now.LowestOpen, now.Acked = c.lowestOpen.Load(), c.acked.Load()
	return now, true
}

// isCurrentEpoch reports whether k has the epoch of the session.
func (c *Client) isCurrentEpoch(k Key) bool {
	now := c.key.Load()
	return now != nil && now.Epoch == k.Epoch
}

// advanceBound bounds how far one answer raises the lowest open id, so that an answer that was long
// delayed makes nobody wait: the next answers raise it further.
const advanceBound = 1024

// isLatestKey reports whether k is the key of the latest Attach. It compares pointers, because an
// engine that lost its memory gives the same epochs again.
func (c *Client) isLatestKey(k *Key) bool { return k != nil && c.key.Load() == k }

// raiseLowestOpen skips ids that can no longer be begun. Callers call it when a claim was answered
// or given up. The caller holds c.mu.
func (c *Client) raiseLowestOpen() {
	was := c.lowestOpen.Load()
	if was == 0 {
		return // nothing is stated before the first Attach, and the first id may be any
	}
	next := was
	for next <= c.ids && next < was+advanceBound && !c.mayBegin(next) {
		next++
	}
	if next != was {
		c.lowestOpen.Store(next)
	}
}

// mayBegin reports whether a claim or a freeze with this id may still be begun.
func (c *Client) mayBegin(id uint64) bool {
	cl := c.claims[id]
	if cl == nil {
		cl = c.unfinished[id]
	}
	if cl != nil {
		return !cl.answered || cl.resend
	}
	return c.freezing[id]
}

// resetLowestOpen starts the count again under a new key. It ignores answered claims: among them
// may be claims of an earlier client, with ids of its own. The caller holds c.mu.
func (c *Client) resetLowestOpen() {
	first := c.ids + 1
	for _, all := range []map[uint64]*claim{c.claims, c.unfinished} {
		for id := range all {
			if c.mayBegin(id) {
				first = min(first, id)
			}
		}
	}
	for id := range c.freezing {
		first = min(first, id)
	}
	c.lowestOpen.Store(first)
}
