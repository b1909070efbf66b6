package lockkeeper

// The client states in every key the lowest id with which it may still begin a claim
// (Key.LowestOpen, R16):
//
//	lowestOpen = min(ids that may still be begun, the next new id)
//
// The client assigns rising ids to claims before it sends them. It never begins an answered claim
// again: it amends, queries or ends the claim, and each of these fails if the engine does not know
// the claim. There is one exception: after an engine has lost its state, the client sends waiting
// claims again. That follows an Attach, which sets the lowest open id again.

// nextID returns the id of a claim that is about to be sent. The caller holds c.mu.
func (c *Client) nextID() uint64 {
	return c.ids.Add(1)
}

// currentKey returns the key of the session, with the lowest open id and the number of the latest
// processed lease. It returns false if the session is not attached. It needs no lock: an id stays
// open until the call that begins it returns.
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

// advanceBound bounds how far one answer raises the lowest open id, and so how long that takes
// under c.mu after a long delay. The next answers raise it further.
const advanceBound = 1024

// isLatestKey reports whether k is the key of the latest Attach. It compares pointers, because an
// engine that lost its memory gives the same epochs again.
func (c *Client) isLatestKey(k *Key) bool { return k != nil && c.key.Load() == k }

// raiseLowestOpen raises the lowest open id past ids with which no claim can begin any more.
// Callers call it after a claim was answered or given up. The caller holds c.mu.
func (c *Client) raiseLowestOpen() {
	was := c.lowestOpen.Load()
	if was == 0 {
		return // the first Attach sets it: the first id may be random (SessionID)
	}
	next := was
	if c.ids.Load()-was > advanceBound && len(c.claims)+len(c.unfinished)+len(c.freezing) < advanceBound {
		c.resetLowestOpen() // plain locks left a wide gap
		return
	}
	for next <= c.ids.Load() && next < was+advanceBound && !c.mayBegin(next) {
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

// resetLowestOpen sets the lowest open id under a new key. It ignores answered claims: some may
// have been made by an earlier client, which chose other ids. The caller holds c.mu.
func (c *Client) resetLowestOpen() {
	first := c.ids.Load() + 1
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
