package wire

import "github.com/lockkeeper/lockkeeper"

// PutStatus adds the answer to a claim of want by the given session.
func (o *Outbox) PutStatus(call uint64, s *lockkeeper.Status, session string, want *lockkeeper.Want) {
	b, begin := o.begin(tagReplies, 1)
	b, at := open(appendUint(b, 1, call), 4)
	o.finish(closeAt(appendStatus(b, s, session, 0, want), at), begin)
}

// PutListed adds one status of a list.
func (o *Outbox) PutListed(call uint64, s *lockkeeper.Status) {
	b, begin := o.begin(tagReplies, 1)
	b, at := open(appendUint(b, 1, call), 4)
	b = closeAt(appendStatus(b, s, "", 0, nil), at)
	o.finish(appendBool(b, 5, true), begin)
}

// PutLease adds a lease with its first claims, up to about leaseBytes. It returns the remaining
// claims, which need further replies.
func (o *Outbox) PutLease(call uint64, l *lockkeeper.Lease) (left []lockkeeper.Status) {
	b, begin := o.begin(tagReplies, 1)
	b, at := open(appendUint(b, 1, call), 3)
	b, left = appendLease(b, l)
	o.finish(appendBool(closeAt(b, at), 5, len(left) > 0), begin)
	return left
}

// PutError adds the refusal of a call.
func (o *Outbox) PutError(call uint64, err error) {
	b, begin := o.begin(tagReplies, 1)
	b, at := open(appendUint(b, 1, call), 2)
	o.finish(closeAt(appendError(b, err), at), begin)
}

// PutDone adds an answer that has nothing but the number of the call.
func (o *Outbox) PutDone(call uint64) {
	b, begin := o.begin(tagReplies, 1)
	o.finish(appendUint(b, 1, call), begin)
}

// PutHint adds a hint, whose session has the handle; 0 if it has none.
func (o *Outbox) PutHint(s *lockkeeper.Status, handle uint64) {
	session := ""
	if handle != 0 {
		session = s.Ref.Session
	}
	b, begin := o.begin(tagChanged, 1)
	o.finish(appendStatus(b, s, session, handle, nil), begin)
}

// A Result is the kind of an answer: the number of its field in Reply.
type Result uint8

// Results. An answer to an end or a ping has the result 0.
const (
	ResultError  Result = 2
	ResultLease  Result = 3
	ResultStatus Result = 4
	ResultAbout  Result = 6
)

// An Answer is a reply whose result is not read yet.
type Answer struct {
	Number uint64
	More   bool // further replies follow
	Result Result

	result []byte // as the frame has it
}

// ParseAnswer reads a reply. Its result is valid as long as the bytes of the reply. A reply with two
// results is refused.
func ParseAnswer(reply []byte) (a Answer, err error) {
	f := fields{rest: reply}
	for f.next() {
		switch f.field {
		case 1:
			a.Number = f.uint()
		case 2, 3, 4, 6:
			if a.Result != 0 {
				f.fail("a reply has two results")
			}
			a.Result, a.result = Result(f.field), f.message()
		case 5:
			a.More = f.bool()
		}
	}
	return a, f.err
}

// Status reads the answer to a claim of want by the given session into s, which is zero. For a list,
// want is nil.
func (a *Answer) Status(session string, want *lockkeeper.Want, s *lockkeeper.Status) error {
	l := listed{Status: s}
	err := l.parse(a.result, session)
	if want != nil {
		l.complete(want)
	}
	return err
}

// Lease reads a lease of the session, or a piece of one, whose claims it appends to those of l.
func (a *Answer) Lease(session string, l *lockkeeper.Lease) error {
	return parseLease(a.result, session, l)
}

// Error reads a refusal. err reports that it is invalid.
func (a *Answer) Error() (refusal *lockkeeper.Error, err error) { return ParseError(a.result) }

// About reads the state of the server.
func (a *Answer) About() (*About, error) {
	m := new(About)
	return m, invalid(m.UnmarshalVT(a.result))
}

// HintHandle returns the handle of the session of a hint; 0 if the hint names the session.
func HintHandle(hint []byte) (handle uint64, err error) {
	f := fields{rest: hint}
	for f.next() {
		if f.field == fieldHandle {
			handle = f.uint()
		}
	}
	return handle, f.err
}

// ParseHint reads a hint, which is of the given session unless it names another, into s, which is
// zero.
func ParseHint(hint []byte, session string, s *lockkeeper.Status) error {
	l := listed{Status: s}
	return l.parse(hint, session)
}
