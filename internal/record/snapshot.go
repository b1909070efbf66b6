package record

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Header is the beginning of a snapshot.
type Header struct {
	Rules    uint64 // the version of the rules that made the table
	Counters table.Counters
	Records  uint64 // number of records that follow
}

// AppendHeader appends the header of s, under the rules of this program, to b.
func AppendHeader(b []byte, s *table.Snapshot) []byte {
	return AppendHeaderUnder(b, table.RulesVersion, s)
}

// AppendHeaderUnder is AppendHeader for a table that was made under that version of the rules.
func AppendHeaderUnder(b []byte, rules uint64, s *table.Snapshot) []byte {
	w := coder{b: appendVersions(b, rules)}
	h := Header{Counters: s.Counters, Records: uint64(Records(s))}
	w.header(&h)
	return w.b
}

// DecodeHeader reads the header in b. b must have no other bytes.
func DecodeHeader(b []byte) (Header, error) {
	r := coder{b: b, reading: true}
	h := Header{Rules: r.versions()}
	r.header(&h)
	return h, r.whole()
}

// whole returns the first error. Remaining bytes are an error, too.
func (c *coder) whole() error {
	if len(c.b) > 0 {
		c.fail(fmt.Errorf("%d bytes follow its end", len(c.b)))
	}
	return c.err
}

func (c *coder) header(h *Header) {
	n := &h.Counters
	c.duration(1, &n.Now)
	c.uint(2, &n.Fences)
	c.uint(3, &n.Tickets)
	c.uint(4, &n.Epochs)
	c.uint(5, &n.Changes)
	c.uint(6, &h.Records)
	c.end()
}

// The kinds of records.
const (
	kindSession = iota + 1
	kindClaim
	kindFreeze
	kindHoldTime
)

// Records returns the number of records of s.
func Records(s *table.Snapshot) int {
	return len(s.Sessions) + len(s.Claims) + len(s.Freezes) + len(s.HoldTimes)
}

// AppendRecord appends record i of s to b: first the sessions, then the claims, the freezes and
// the hold times.
func AppendRecord(b []byte, s *table.Snapshot, i int) []byte {
	w := coder{b: b}
	switch {
	case i < len(s.Sessions):
		w.b = append(w.b, kindSession)
		w.sessionRecord(&s.Sessions[i])
		return w.b
	default:
		i -= len(s.Sessions)
	}
	switch {
	case i < len(s.Claims):
		w.b = append(w.b, kindClaim)
		w.claimRecord(&s.Claims[i])
	case i < len(s.Claims)+len(s.Freezes):
		w.b = append(w.b, kindFreeze)
		w.freezeRecord(&s.Freezes[i-len(s.Claims)])
	default:
		w.b = append(w.b, kindHoldTime)
		w.holdTimeRecord(&s.HoldTimes[i-len(s.Claims)-len(s.Freezes)])
	}
	return w.b
}

// AddRecord adds the record in b to s. b must have no other bytes.
func AddRecord(s *table.Snapshot, b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	r := coder{b: b[1:], reading: true}
	switch b[0] {
	case kindSession:
		return add(&r, &s.Sessions, (*coder).sessionRecord)
	case kindClaim:
		return add(&r, &s.Claims, (*coder).claimRecord)
	case kindFreeze:
		return add(&r, &s.Freezes, (*coder).freezeRecord)
	case kindHoldTime:
		return add(&r, &s.HoldTimes, (*coder).holdTimeRecord)
	}
	return fmt.Errorf("records of kind %d are unknown", b[0])
}

func add[T any](c *coder, all *[]T, fields func(*coder, *T)) error {
	var one T
	fields(c, &one)
	if err := c.whole(); err != nil {
		return err
	}
	*all = append(*all, one)
	return nil
}

func (c *coder) sessionRecord(r *table.SessionRecord) {
	text(c, 1, &r.ID)
	c.label(2, &r.Label)
	c.duration(5, &r.TTL)
	c.uint(6, &r.Epoch)
	c.duration(7, &r.Deadline)
	c.duration(8, &r.Promise)
	c.bool(9, &r.Resumed)
	c.uint(10, &r.Leases)
	c.uint(11, &r.Acked)
	c.uint(12, &r.LowestOpen)
	c.bool(13, &r.Closed)
	c.end()
}

func (c *coder) claimRecord(r *table.ClaimRecord) {
	c.ref(1, &r.Ref)
	if c.tag(2, true) {
		c.want(&r.Want)
	} else {
		c.fail(fmt.Errorf("a claim has no want"))
	}
	enum(c, 3, &r.State, lockkeeper.Freezing)
	c.bool(4, &r.Converting)
	grants := elements(c, 5, &r.Grants)
	for i := range grants {
		c.target(&grants[i].Target)
		c.int(5, &grants[i].InUse)
		c.int(6, &grants[i].Slot)
		c.end()
	}
	c.uint(6, &r.Ticket)
	c.uint(7, &r.Fence)
	c.uint(8, &r.Change)
	c.duration(9, &r.Changed)
	c.duration(10, &r.Arrived)
	c.duration(11, &r.Granted)
	c.duration(12, &r.Bound)
	c.duration(13, &r.Quiet)
	c.duration(14, &r.StatedEnd)
	c.uint(15, &r.StatedIn)
	c.duration(16, &r.UnackedEnd)
	c.bool(17, &r.Unconfirmed)
	c.bool(18, &r.Overdue)
	asks := elements(c, 19, &r.Asks)
	for i := range asks {
		c.ref(1, &asks[i].By)
		c.duration(2, &asks[i].End)
		c.end()
	}
	if pointed(c, 20, &r.Operator) {
		c.label(1, &r.Operator.Label)
		c.duration(4, &r.Operator.End)
		c.end()
	}
	if pointed(c, 21, &r.Lapse) {
		c.duration(1, &r.Lapse.End)
		enum(c, 2, &r.Lapse.Reason, lockkeeper.Quota)
		text(c, 3, &r.Lapse.Text)
		c.end()
	}
	enum(c, 22, &r.Reason, lockkeeper.Quota)
	text(c, 23, &r.Text)
	c.bool(24, &r.Thawed)
	c.bool(25, &r.Acked)
	c.duration(26, &r.Ended)
	c.duration(27, &r.Forget)
	c.duration(28, &r.UnackedUntil)
	c.end()
}

func (c *coder) freezeRecord(r *table.FreezeRecord) {
	text(c, 1, &r.Path)
	c.ref(2, &r.By)
	c.label(3, &r.Label)
	c.duration(6, &r.Since)
	c.duration(7, &r.Until)
	c.bool(8, &r.Ended)
	c.end()
}

func (c *coder) holdTimeRecord(r *table.HoldTimeRecord) {
	text(c, 1, &r.Path)
	c.duration(2, &r.Estimate)
	c.duration(3, &r.At)
	c.bool(4, &r.Forgotten)
	c.end()
}
