package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// The generated code is the oracle of these tests: what is written by hand has the same bytes as what
// it writes, and bytes come to the same values.

// values are random ones of all messages that are written by hand.
type values struct {
	Call    Call
	Want    lockkeeper.Want
	Ending  lockkeeper.Ending
	Session lockkeeper.Session
	Status  lockkeeper.Status
	Lease   lockkeeper.Lease
	Error   lockkeeper.Error
	Handle  uint64
}

const ownSession = "k3v9"

func randomValues(r *rand.Rand, zero bool) *values {
	v := new(values)
	for _, part := range []any{&v.Want, &v.Ending, &v.Session, &v.Status, &v.Lease, &v.Error, &v.Handle,
		&v.Call.Number, &v.Call.Handle, &v.Call.Named, &v.Call.Key, &v.Call.Traceparent} {
		fill(r, reflect.ValueOf(part).Elem(), zero)
	}
	v.Error.Err, v.Error.Op, v.Error.Cause = codes[1+r.IntN(len(codes)-1)], "", nil
	if !v.Call.Named {
		v.Call.Key.Session, v.Call.Key.Epoch = "", 0
	}
	v.Lease.Key = lockkeeper.Key{Session: ownSession, Epoch: v.Lease.Key.Epoch}
	for i := range v.Lease.Claims {
		v.Lease.Claims[i].Ref.Session = ownSession
	}
	if r.IntN(2) == 0 {
		v.Status.Ref.Session = ownSession
		repeat(r, &v.Status, &v.Want)
	}
	return v
}

// request returns the call of v as a generated message.
func (v *values) request() *Request {
	m := &Request{Call: v.Call.Number, Handle: v.Call.Handle, LowestOpen: v.Call.Key.LowestOpen, Acked: v.Call.Key.Acked,
		Traceparent: v.Call.Traceparent}
	if v.Call.Named {
		m.Key = newKey(v.Call.Key)
	}
	return m
}

// written compares what put adds by hand to an outbox with what the oracle adds.
func written(t *testing.T, what any, put, oracle func(*Outbox)) (message []byte) {
	t.Helper()
	var hand, generated Outbox
	put(&hand)
	oracle(&generated)
	got, want := hand.Take(nil), generated.Take(nil)
	if !bytes.Equal(got, want) {
		t.Fatalf("%+v\nis written as\n%x, and by generated code as\n%x", what, got, want)
	}
	messages, err := readAll(got, MaxFrame)
	if len(messages) != 1 {
		t.Fatalf("%d frames, then %v", len(messages), err)
	}
	return messages[0]
}

func TestHandWrittenBytesAreThoseOfGeneratedCode(t *testing.T) {
	r := testmode.Rand(t)
	for i := range 1000 {
		v := randomValues(r, i > 0)
		m := v.request()
		drain := &Drain{Reason: v.Want.Note, UnlessVersion: v.Want.As}
		requests := map[Method]func(*Outbox){
			MethodClaim:  func(o *Outbox) { o.PutClaim(&v.Call, &v.Want) },
			MethodEnd:    func(o *Outbox) { o.PutEnd(&v.Call, &v.Ending) },
			MethodAttach: func(o *Outbox) { o.PutAttach(&v.Call, &v.Session) },
			MethodRenew:  func(o *Outbox) { o.PutPlain(&v.Call) },
			MethodPing:   func(o *Outbox) { o.PutPlain(&v.Call) },
			MethodDrain:  func(o *Outbox) { o.PutDrain(&v.Call, drain) },
		}
		for method, put := range requests {
			v.Call.Method = method
			m.Claim, m.End, m.Attach, m.Drain = nil, nil, nil, nil
			m.Renew, m.Ping = method == MethodRenew, method == MethodPing
			switch method {
			case MethodClaim:
				m.Claim = NewWant(&v.Want)
			case MethodEnd:
				m.End = NewEnding(&v.Ending)
			case MethodAttach:
				m.Attach = NewSession(&v.Session)
			case MethodDrain:
				m.Drain = drain
			}
			if message := written(t, v, put, func(o *Outbox) { o.PutRequest(m) }); !sameRequests(t, message) {
				t.Fatalf("%x is refused", message)
			}
		}
		replies := []struct {
			put func(*Outbox)
			m   *Reply
		}{
			{func(o *Outbox) { o.PutStatus(v.Call.Number, &v.Status, ownSession, &v.Want) },
				&Reply{Call: v.Call.Number, Status: NewAnswer(&v.Status, ownSession, &v.Want)}},
			{func(o *Outbox) { o.PutListed(v.Call.Number, &v.Status) },
				&Reply{Call: v.Call.Number, Status: NewStatus(&v.Status, ""), More: true}},
			{func(o *Outbox) { o.PutLease(v.Call.Number, &v.Lease) }, &Reply{Call: v.Call.Number, Lease: onePiece(&v.Lease)}},
			{func(o *Outbox) { o.PutError(v.Call.Number, &v.Error) },
				&Reply{Call: v.Call.Number, Error: NewError(&v.Error)}},
			{func(o *Outbox) { o.PutDone(v.Call.Number) }, &Reply{Call: v.Call.Number}},
		}
		for _, reply := range replies {
			message := written(t, v, reply.put, func(o *Outbox) { o.PutReply(reply.m) })
			if !sameReplies(t, message, &v.Want) {
				t.Fatalf("%x is refused", message)
			}
		}
		hint := NewStatus(&v.Status, "")
		if v.Handle != 0 {
			hint = NewStatus(&v.Status, v.Status.Ref.Session)
			hint.Handle = v.Handle
		}
		sameReplies(t, written(t, v, func(o *Outbox) { o.PutHint(&v.Status, v.Handle) },
			func(o *Outbox) { o.PutChanged(hint) }), &v.Want)
	}
}

func onePiece(l *lockkeeper.Lease) *Lease {
	m, _ := newLease(l)
	return m
}

// A readRequest is a request with its argument, read by hand or by generated code.
type readRequest struct {
	Number, Handle uint64
	Named          bool
	Key            lockkeeper.Key
	Method         Method
	Traceparent    string
	Argument       any
}

// handRequests reads the message of a ClientFrame as a server does.
func handRequests(message []byte) (requests []readRequest, flows []string, err error) {
	elements := NewElements(message)
	for elements.Next() {
		switch elements.Field() {
		case FieldHandshake:
			return nil, nil, ErrFrame
		case FieldFlows:
			call, credit, stop, err := ParseFlow(elements.Message())
			if err != nil {
				return nil, nil, err
			}
			flows = append(flows, fmt.Sprint(call, credit, stop))
		case FieldRequests:
			var c Call
			if err := ParseCall(elements.Message(), &c); err != nil {
				return nil, nil, err
			}
			read := readRequest{c.Number, c.Handle, c.Named, c.Key, c.Method, c.Traceparent, nil}
			switch c.Method {
			case MethodAttach:
				read.Argument, err = c.Session()
			case MethodClaim:
				var w lockkeeper.Want
				err = c.Want(&w)
				read.Argument = w
			case MethodEnd:
				read.Argument, err = c.Ending()
			case MethodList:
				var q *Query
				q, err = c.Query()
				read.Argument = q.Read()
			case MethodDrain:
				var d *Drain
				d, err = c.Drain()
				read.Argument = d.GetReason()
			}
			if err != nil {
				return nil, nil, err
			}
			requests = append(requests, read)
		}
	}
	return requests, flows, elements.Err()
}

// oracleRequests reads it by generated code.
func oracleRequests(message []byte) (requests []readRequest, flows []string, err error) {
	var f ClientFrame
	if err := f.UnmarshalVT(message); err != nil {
		return nil, nil, err
	}
	for _, m := range f.GetFlows() {
		flows = append(flows, fmt.Sprint(m.GetCall(), m.GetCredit(), m.GetStop()))
	}
	for _, m := range f.GetRequests() {
		key := m.GetKey().Read()
		key.LowestOpen, key.Acked = m.GetLowestOpen(), m.GetAcked()
		read := readRequest{m.GetCall(), m.GetHandle(), m.GetKey() != nil, key, 0, m.GetTraceparent(), nil}
		switch {
		case m.GetAttach() != nil:
			read.Method, read.Argument = MethodAttach, m.GetAttach().Read()
		case m.GetRenew():
			read.Method = MethodRenew
		case m.GetClaim() != nil:
			w := m.GetClaim().Read()
			if w.Targets = w.Targets[:min(len(w.Targets), lockkeeper.MaxTargets+1)]; len(w.Targets) == 0 {
				w.Targets = nil
			}
			read.Method, read.Argument = MethodClaim, w
		case m.GetEnd() != nil:
			read.Method, read.Argument = MethodEnd, m.GetEnd().Read()
		case m.GetList() != nil:
			read.Method, read.Argument = MethodList, m.GetList().Read()
		case m.GetAbout():
			read.Method = MethodAbout
		case m.GetDrain() != nil:
			read.Method, read.Argument = MethodDrain, m.GetDrain().GetReason()
		case m.GetPing():
			read.Method = MethodPing
		}
		requests = append(requests, read)
	}
	return requests, flows, nil
}

// A readReply is a reply or a hint, read by hand or by generated code.
type readReply struct {
	Call, Handle uint64
	More         bool
	Result       any
}

// handReplies reads the message of a ServerFrame as a client does: all answers are of claims of want.
func handReplies(message []byte, want *lockkeeper.Want) (replies, hints []readReply, rest string, err error) {
	var others ServerFrame
	elements := NewElements(message)
	for elements.Next() {
		switch elements.Field() {
		case FieldHandshake:
			return nil, nil, "", ErrFrame
		case FieldReplies:
			a, err := ParseAnswer(elements.Message())
			read := readReply{Call: a.Number, More: a.More}
			switch {
			case err != nil:
			case a.Result == ResultError:
				var refusal *lockkeeper.Error
				refusal, err = a.Error()
				read.Result = refusal
			case a.Result == ResultLease:
				var l lockkeeper.Lease
				err = a.Lease(ownSession, &l)
				read.Result = l
			case a.Result == ResultStatus:
				var s lockkeeper.Status
				err = a.Status(ownSession, want, &s)
				read.Result = s
			case a.Result == ResultAbout:
				var m *About
				m, err = a.About()
				read.Result = m.Read()
			}
			if err != nil {
				return nil, nil, "", err
			}
			replies = append(replies, read)
		case FieldChanged:
			var s lockkeeper.Status
			handle, err := HintHandle(elements.Message())
			if err = errors.Join(err, ParseHint(elements.Message(), ownSession, &s)); err != nil {
				return nil, nil, "", err
			}
			hints = append(hints, readReply{Handle: handle, Result: s})
		case FieldMissed:
			others.Missed = elements.Flag()
		case FieldDraining:
			others.Draining = elements.Text()
		case FieldRefused:
			if _, err := ParseError(elements.Message()); err != nil {
				return nil, nil, "", err
			}
		case FieldCluster:
			if _, err := ParseCluster(elements.Message()); err != nil {
				return nil, nil, "", err
			}
		}
	}
	return replies, hints, others.String(), elements.Err()
}

// oracleReplies reads it by generated code.
func oracleReplies(message []byte, want *lockkeeper.Want) (replies, hints []readReply, rest string, err error) {
	var f ServerFrame
	if err := f.UnmarshalVT(message); err != nil {
		return nil, nil, "", err
	}
	for _, m := range f.GetReplies() {
		read := readReply{Call: m.GetCall(), More: m.GetMore()}
		switch {
		case m.GetError() != nil:
			read.Result = m.GetError().Read()
		case m.GetLease() != nil:
			read.Result = m.GetLease().Read(ownSession)
		case m.GetStatus() != nil:
			read.Result = m.GetStatus().readAnswer(ownSession, want)
		case m.GetAbout() != nil:
			read.Result = m.GetAbout().Read()
		}
		replies = append(replies, read)
	}
	for _, m := range f.GetChanged() {
		hints = append(hints, readReply{Handle: m.GetHandle(), Result: m.Read(ownSession)})
	}
	return replies, hints, (&ServerFrame{Missed: f.GetMissed(), Draining: f.GetDraining()}).String(), nil
}

// sameRequests fails the test if the message of a ClientFrame comes to other requests than generated
// code makes of it, or is taken where that refuses it. It reports whether it is taken.
func sameRequests(t *testing.T, message []byte) bool {
	t.Helper()
	requests, flows, err := handRequests(message)
	if err != nil {
		return false
	}
	oracle, oracleFlows, err := oracleRequests(message)
	if err != nil || !reflect.DeepEqual(requests, oracle) || !reflect.DeepEqual(flows, oracleFlows) {
		t.Fatalf("%x is read as\n%+v %v\nand by generated code as\n%+v %v (%v)", message, requests, flows, oracle,
			oracleFlows, err)
	}
	return true
}

// sameReplies is sameRequests for a ServerFrame, whose answers are of claims of want.
func sameReplies(t *testing.T, message []byte, want *lockkeeper.Want) bool {
	t.Helper()
	replies, hints, rest, err := handReplies(message, want)
	if err != nil {
		return false
	}
	oracle, oracleHints, oracleRest, err := oracleReplies(message, want)
	if err != nil || !reflect.DeepEqual(replies, oracle) || !reflect.DeepEqual(hints, oracleHints) || rest != oracleRest {
		t.Fatalf("%x is read as\n%+v %+v %s\nand by generated code as\n%+v %+v %s (%v)", message, replies, hints, rest,
			oracle, oracleHints, oracleRest, err)
	}
	return true
}

// Messages of the generated code with every field, packed and unpacked lists, and messages in pieces
// are read by hand as that code reads them.
func TestGeneratedMessagesAreReadByHand(t *testing.T) {
	r := testmode.Rand(t)
	for i := range 1000 {
		v := randomValues(r, i > 0)
		w := &v.Want
		first, second := v.request(), randomValues(r, true).request()
		first.Attach, second.Claim = NewSession(&v.Session), NewWant(w)
		third := &Request{Call: 3, List: NewQuery(&lockkeeper.Query{Session: "s", Brief: true}, 7)}
		fourth := &Request{Call: 4, Drain: &Drain{Reason: "r"}}
		client := &ClientFrame{Requests: []*Request{first, second, third, fourth, {Call: 5, About: true}, {}},
			Flows: []*Flow{{Call: 3, Credit: 8}, {Call: 3, Stop: true}}}
		answer := NewAnswer(&v.Status, ownSession, w)
		answer.Handle = v.Handle
		server := &ServerFrame{
			Replies: []*Reply{{Call: 1, Lease: onePiece(&v.Lease), More: true}, {Call: 2, Status: answer},
				{Call: 3, Error: NewError(&v.Error)}, {Call: 4, About: &About{Version: "v", Uptime: 1}}, {Call: 5}},
			Changed: []*Status{answer, NewStatus(&v.Status, "")},
			Missed:  r.IntN(2) == 0, Draining: "why", Refused: NewError(&v.Error),
			Cluster: &Cluster{Id: "k3v9", Addresses: []string{"a:1", "b:1"}, Self: "b:1", Suspended: "why"},
		}
		for _, m := range []part{client, server} {
			message := marshal(nil, m, m.SizeVT())
			is := func(message []byte) bool {
				if m == client {
					return sameRequests(t, message)
				}
				return sameReplies(t, message, w)
			}
			if !is(message) {
				t.Fatalf("%x is refused", message)
			}
			for range 20 { // damaged, it is refused by both, or comes to the same
				is(damaged(r, message))
			}
		}
	}
}

// damaged returns a copy of a message with a few bytes changed, doubled or missing.
func damaged(r *rand.Rand, message []byte) []byte {
	b := bytes.Clone(message)
	for range 1 + r.IntN(3) {
		at := r.IntN(len(b))
		switch r.IntN(4) {
		case 0:
			b[at] = byte(r.Uint32())
		case 1:
			b[at] ^= 1 << r.IntN(8)
		case 2:
			b = b[:max(at, 1)]
		case 3:
			n := r.IntN(min(len(b)-at, 20) + 1)
			b = append(b[:at:at], append(bytes.Clone(b[at:at+n]), b[at:]...)...)
		}
	}
	return b
}
