package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lockkeeper/lockkeeper"
)

// A Method is what a request asks for: the number of its field in Request.
type Method uint8

// Methods. A request that has none that this package knows has the method 0.
const (
	MethodAttach Method = fieldAttach
	MethodRenew  Method = 7
	MethodClaim  Method = fieldClaim
	MethodEnd    Method = 9
	MethodList   Method = 10
	MethodAbout  Method = 11
	MethodDrain  Method = 12
	MethodPing   Method = 13
)

// A Call is a request without the argument of its method.
type Call struct {
	Number      uint64         // 0 is none
	Handle      uint64         // of its session; 0 if it has none
	Named       bool           // it names its session by Key, and binds Handle if that is not 0
	Key         lockkeeper.Key // the session and the epoch only if Named
	Method      Method
	Traceparent string

	argument []byte // of the method, as the frame has it
}

// PutClaim adds a request that claims w. It reports false, and adds nothing, if that is larger than a
// frame.
func (o *Outbox) PutClaim(c *Call, w *lockkeeper.Want) bool {
	b, begin := o.begin(tagRequests, 1+len(w.Targets))
	b, at := open(appendCall(b, c), fieldClaim)
	b = closeAt(appendWant(b, w), at)
	return o.finish(appendText(b, 14, c.Traceparent), begin)
}

// PutEnd adds a request for the ending e, as PutClaim does.
func (o *Outbox) PutEnd(c *Call, e *lockkeeper.Ending) bool {
	b, begin := o.begin(tagRequests, 1)
	b, at := open(appendCall(b, c), protowire.Number(MethodEnd))
	b = closeAt(appendEnding(b, e), at)
	return o.finish(appendText(b, 14, c.Traceparent), begin)
}

// PutAttach adds a request to attach s, as PutClaim does.
func (o *Outbox) PutAttach(c *Call, s *lockkeeper.Session) bool {
	b, begin := o.begin(tagRequests, 1+len(s.Lapsed))
	b, at := open(appendCall(b, c), fieldAttach)
	b = closeAt(appendSession(b, s), at)
	return o.finish(appendText(b, 14, c.Traceparent), begin)
}

// PutDrain adds a request to drain the server, as PutClaim does.
func (o *Outbox) PutDrain(c *Call, d *Drain) bool {
	b, begin := o.begin(tagRequests, 1)
	b, at := open(appendCall(b, c), protowire.Number(MethodDrain))
	b = closeAt(appendText(appendText(b, 1, d.GetReason()), 2, d.GetUnlessVersion()), at)
	return o.finish(appendText(b, 14, c.Traceparent), begin)
}

// PutPlain adds a request whose method has no argument, as PutClaim does.
func (o *Outbox) PutPlain(c *Call) bool {
	b, begin := o.begin(tagRequests, 1)
	b = appendBool(appendCall(b, c), protowire.Number(c.Method), true)
	return o.finish(appendText(b, 14, c.Traceparent), begin)
}

// appendCall writes the fields of a request before its method.
func appendCall(b []byte, c *Call) []byte {
	b = appendUint(b, 1, c.Number)
	b = appendUint(b, 2, c.Handle)
	if c.Named {
		var at int
		b, at = open(b, 3)
		b = appendText(b, 1, c.Key.Session)
		b = closeAt(appendUint(b, 2, c.Key.Epoch), at)
	}
	b = appendUint(b, 4, c.Key.LowestOpen)
	return appendUint(b, 5, c.Key.Acked)
}

// ParseCall reads a request. Its argument is valid as long as the bytes of the request. A request with
// two methods is refused.
func ParseCall(request []byte, c *Call) error {
	*c = Call{}
	f := fields{rest: request}
	for f.next() {
		switch f.field {
		case 1:
			c.Number = f.uint()
		case 2:
			c.Handle = f.uint()
		case 3:
			c.Named = true
			f.inner(parseKey(f.message(), &c.Key))
		case 4:
			c.Key.LowestOpen = f.uint()
		case 5:
			c.Key.Acked = f.uint()
		case 6, 8, 9, 10, 12:
			c.argument = f.message()
			c.asks(&f)
		case 7, 11, 13:
			if f.bool() {
				c.asks(&f)
			}
		case 14:
			c.Traceparent = f.text()
		}
	}
	return f.err
}

// asks takes the method of a request from its field.
func (c *Call) asks(f *fields) {
	if c.Method != 0 {
		f.fail("a request has two methods")
	}
	c.Method = Method(f.field)
}

func parseKey(message []byte, k *lockkeeper.Key) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			k.Session = f.text()
		case 2:
			k.Epoch = f.uint()
		}
	}
	return f.err
}

// Want reads the argument of a claim into w, which is zero. It reads only one target too many, which
// Want.Check refuses.
func (c *Call) Want(w *lockkeeper.Want) error { return parseWant(c.argument, w) }

// Ending reads the argument of an end.
func (c *Call) Ending() (e lockkeeper.Ending, err error) {
	err = parseEnding(c.argument, &e)
	return e, err
}

// Session reads the argument of an attach.
func (c *Call) Session() (s lockkeeper.Session, err error) {
	err = parseSession(c.argument, &s)
	return s, err
}

// Query reads the argument of a list.
func (c *Call) Query() (*Query, error) {
	m := new(Query)
	return m, invalid(m.UnmarshalVT(c.argument))
}

// Drain reads the argument of a drain.
func (c *Call) Drain() (*Drain, error) {
	m := new(Drain)
	return m, invalid(m.UnmarshalVT(c.argument))
}
