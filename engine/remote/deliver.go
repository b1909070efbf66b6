package remote

import (
	"cmp"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// An arrival is an answer with its call or list; with neither if that is closed, or has all it needs
// of the answer.
type arrival struct {
	wire.Answer
	call *call
	list *list
}

// arrivalsRoom is the number of arrivals whose memory a reader keeps.
const arrivalsRoom = 1024

// deliver adds the answers of a frame to their calls and lists, and completes each call with its last
// one. One lock finds all calls, so that a frame with many answers does not contend for it with the
// callers that it wakes. An error ends the connection; all answers that were found before it are delivered.
//
// Only the reader calls deliver.
func (c *conn) deliver(all []arrival) error {
	if len(all) == 0 {
		return nil
	}
	c.Lock()
	c.crowd = len(all)
	waits := len(c.lead.waiting) > 0
	var invalid error
	for i := range all {
		a := &all[i]
		if a.call, a.list = c.calls.find(a.Number); !a.More {
			c.calls.remove(a.Number)
		} else if a.call != nil { // a piece of a lease; the caller reads the answer only when it is complete
			if invalid = a.call.take(&a.Answer); invalid != nil {
				all = all[:i]
				break
			}
			a.call = nil
		}
	}
	c.Unlock()
	for i := range all {
		a := &all[i]
		switch {
		case a.call != nil:
			err := c.complete(a, &waits)
			invalid = cmp.Or(invalid, err)
		case a.list != nil:
			a.list.take(&a.Answer)
		}
	}
	return invalid
}

// complete adds the last answer to a call, and wakes its caller. waits tells whether claims of the
// connection may wait; complete keeps it current.
func (c *conn) complete(a *arrival, waits *bool) (invalid error) {
	cl := a.call
	if invalid = cl.take(&a.Answer); invalid != nil {
		cl.err = unavailable(invalid)
	}
	if s := &cl.status; s.State == lockkeeper.Waiting || *waits && s.State != 0 {
		c.Lock()
		c.note(s)
		c.Unlock()
		*waits = true
	}
	cl.done <- struct{}{}
	return invalid
}

// arrived appends an answer to those of the frame at hand.
func (c *conn) arrived(reply []byte) error {
	a, err := wire.ParseAnswer(reply)
	if err == nil {
		c.lead.arrivals = append(c.lead.arrivals, arrival{Answer: a})
	}
	return err
}

// deliverArrived delivers the answers of the frame at hand, which ended with err. It returns err, or
// else its own error.
func (c *conn) deliverArrived(err error) error {
	all := c.lead.arrivals
	if own := c.deliver(all); err == nil {
		err = own
	}
	clear(all)
	if c.lead.arrivals = all[:0]; cap(all) > arrivalsRoom {
		c.lead.arrivals = nil
	}
	return err
}

// deliverAll delivers the answers of a frame that has nothing else. An error ends the connection.
func (c *conn) deliverAll(message []byte) error {
	e := wire.NewElements(message)
	for e.Next() {
		if err := c.arrived(e.Message()); err != nil {
			return c.deliverArrived(err)
		}
	}
	return c.deliverArrived(e.Err())
}
