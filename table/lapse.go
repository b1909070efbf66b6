package table

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// lapseClaim applies the report l that c lapsed; c may be nil. Only the first report counts: a
// repeated or late one changes nothing (R12). If c has no end for the reason in l, the report
// releases c, and c ends for the reason released.
func (t *Table) lapseClaim(c *claim, l *lockkeeper.Lapse, released lockkeeper.Reason) {
	switch {
	case c == nil || c.lapse != nil:
		return
	case c.waiting() && l.Reason == lockkeeper.Expired:
		t.endClaim(c, lockkeeper.Expired, "")
		return
	case c.waiting():
		t.endClaim(c, lockkeeper.Cancelled, "")
		return
	}
	stated := c.lapseFor(l)
	if stated == nil {
		t.endClaim(c, released, "")
		return
	}
	stated.end = min(stated.end, c.session().deadline)
	if stated.end <= t.now {
		c.own().lapse = stated
		t.endClaim(c, stated.reason, stated.text)
		return
	}
	if c.converting() {
		t.giveUp(c, lockkeeper.Cancelled, "")
	}
	c.own().lapse = stated
	t.recordChange(c, AskChanged, lockkeeper.NoReason)
	t.reschedule(c)
}

// lapseFor returns the end of c after the report l; nil if c has no end for that reason.
func (c *claim) lapseFor(l *lockkeeper.Lapse) *lapse {
	stated := &lapse{end: l.EndsAt, reason: l.Reason}
	switch {
	case l.Reason == lockkeeper.Overdue && c.want.MaxHold == 0, l.Reason == lockkeeper.Revoked && c.operator == nil:
		return nil
	case l.Reason == lockkeeper.Overdue:
		stated.end = c.granted + c.want.MaxHold + c.want.Grace
	case l.Reason == lockkeeper.Revoked:
		stated.end, stated.text = c.operator.end, words(c.operator.Label)
	case l.Reason == lockkeeper.Stolen:
		stated.text = c.askedBy(l.EndsAt)
	}
	return stated
}

// askedBy describes the claim whose ask of c ends at end; "" if it withdrew the ask.
func (c *claim) askedBy(end time.Duration) string {
	for _, a := range c.asks {
		if a.end == end {
			return words(a.by.label.unpack())
		}
	}
	return ""
}
