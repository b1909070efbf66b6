package lockkeeper

// What the client states with every key (Key.LowestOpen): the lowest id with which
// it may still begin a claim. Ids are given in the order in which claims are
// entered here, before they are sent, so all below the first one that is not
// answered are past. An answered claim is never begun again: it is amended, asked
// about and ended, for which the engine has to know it. Only an engine that lost its memory
// is asked anew for what waits; that is after an Attach, which begins the count anew.

// enter gives the next id, for what is about to be sent; c.mu is held.
func (c *Client) enter() uint64 {
	c.ids++
	return c.ids
}

// keyNow is the key of the session with what is answered and heard by now; false if
// it is not attached. It needs no lock: what is not answered stays so until the call
// that asks for it returns.
func (c *Client) keyNow() (Key, bool) {
	k := c.key.Load()
	if k == nil {
		return Key{}, false
	}
	now := *k
	now.LowestOpen, now.Acked = c.answered.Load(), c.heard.Load()
	return now, true
}

// holdsKey reports whether k is still the key of the session.
func (c *Client) holdsKey(k Key) bool {
	now := c.key.Load()
	return now != nil && now.Epoch == k.Epoch
}

// mostAdvanced bounds how far one answer moves the count, so that one that was late
// keeps nobody waiting: the next answers move it on.
const mostAdvanced = 1024

// holds reports whether k is still what the latest attach gave. Numbers don't tell
// that: an engine that lost its memory gives them anew.
func (c *Client) holds(k *Key) bool { return k != nil && c.key.Load() == k }

// advance takes note that something was answered, or is not asked for any more;
// c.mu is held.
func (c *Client) advance() {
	was := c.answered.Load()
	if was == 0 {
		return // nothing is stated before the first Attach, and the first id may be any
	}
	next := was
	for next <= c.ids && next < was+mostAdvanced && !c.unanswered(next) {
		next++
	}
	if next != was {
		c.answered.Store(next)
	}
}

// unanswered reports whether a claim or a freeze of this id may still be begun.
func (c *Client) unanswered(id uint64) bool {
	cl := c.claims[id]
	if cl == nil {
		cl = c.todo[id]
	}
	if cl != nil {
		return !cl.answered || cl.resend
	}
	return c.freezing[id]
}

// recount begins the count anew, under a new key; c.mu is held. What is answered
// is not looked at: among it may be claims of a predecessor, with ids of its own.
func (c *Client) recount() {
	first := c.ids + 1
	for _, all := range []map[uint64]*claim{c.claims, c.todo} {
		for id := range all {
			if c.unanswered(id) {
				first = min(first, id)
			}
		}
	}
	for id := range c.freezing {
		first = min(first, id)
	}
	c.answered.Store(first)
}
