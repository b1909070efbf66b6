package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/lockkeeper/lockkeeper"
)

// readAll reads frames as a server does.
func readAll(frames []byte, limit int) (messages [][]byte, err error) {
	in := bufio.NewReader(bytes.NewReader(frames))
	for {
		length, err := ReadLength(in, limit)
		if err != nil {
			return messages, err
		}
		message, err := ReadMessage(in, length, nil, nil)
		if err != nil {
			return messages, err
		}
		messages = append(messages, message)
	}
}

// The outbox has the library's delimited form, in frames that are not too large.
func TestOutboxWritesDelimitedFrames(t *testing.T) {
	var out Outbox
	const many = 40_000
	for id := range uint64(many) {
		out.PutReply(&Reply{Call: id + 1, Status: &Status{Note: strings.Repeat("n", int(id%100))}})
		if id == many/2 {
			out.PutFrame(&ServerFrame{Missed: true})
		}
	}
	out.PutChanged(&Status{Id: 7})
	in := bufio.NewReader(bytes.NewReader(out.Take(nil)))
	next, missed, changed, frames := uint64(1), 0, 0, 0
	for ; ; frames++ {
		var f ServerFrame
		err := protodelim.UnmarshalOptions{MaxSize: fullFrame}.UnmarshalFrom(in, &f)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range f.GetReplies() {
			if m.GetCall() != next {
				t.Fatalf("reply %d comes where %d is due", m.GetCall(), next)
			}
			next++
		}
		if f.GetMissed() {
			missed++
		}
		changed += len(f.GetChanged())
	}
	if next != many+1 || missed != 1 || changed != 1 || frames < 4 {
		t.Errorf("read %d of %d replies, %d missed, %d changed in %d frames", next-1, many, missed, changed, frames)
	}
	if out.Len() != 0 {
		t.Errorf("%d bytes are left", out.Len())
	}
}

// No frame of an outbox has more elements than a server accepts, however small they are. A frame with
// more is refused; an invalid message is left to the decoder.
func TestElementsOfFramesAreBounded(t *testing.T) {
	var out Outbox
	const many = 3 * MaxElements
	for id := range uint64(many) {
		out.PutRequest(&Request{Call: id + 1})
	}
	claim := &Request{Call: 1, Claim: &Want{Targets: make([]*Target, lockkeeper.MaxTargets)}}
	for i := range claim.Claim.Targets {
		claim.Claim.Targets[i] = new(Target)
	}
	for range MaxElements / 32 {
		out.PutRequest(claim)
	}
	messages, err := readAll(out.Take(nil), MaxFrame)
	if err != io.EOF {
		t.Fatal(err)
	}
	requests := 0
	for _, m := range messages {
		var f ClientFrame
		n, err := CheckElements(m)
		if err := errors.Join(err, f.UnmarshalVT(m)); err != nil {
			t.Fatal(err)
		}
		if has := len(f.GetRequests()) + len(f.GetFlows()); n < has && has > fewElements {
			t.Errorf("%d elements are counted, of %d requests and credits", n, has)
		}
		requests += len(f.GetRequests())
	}
	if requests != many+MaxElements/32 {
		t.Errorf("%d requests are read", requests)
	}
	for name, element := range map[string][]byte{
		"requests": {fieldRequests<<3 | 2, 0},
		"credits":  {3<<3 | 2, 0},
		"targets":  {fieldRequests<<3 | 2, 4, fieldClaim<<3 | 2, 2, fieldTargets<<3 | 2, 0},
	} {
		if _, err := CheckElements(bytes.Repeat(element, MaxElements+1)); !errors.Is(err, ErrFrame) {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	ids := make([]uint64, 4*MaxElements)
	attach := &ClientFrame{Requests: []*Request{{Attach: &Session{Lapsed: []*Lapse{{Ids: ids}}}}}}
	message, err := attach.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := CheckElements(message); err != nil || n < len(ids) {
		t.Errorf("%d elements are counted, of %d ids of lapses (%v)", n, len(ids), err)
	}
	if _, err := CheckElements(bytes.Repeat([]byte{0xff}, MaxFrame)); err != nil {
		t.Errorf("of garbage: %v", err)
	}
}

// Frames that the library wrote are read.
func TestLibrarysFramesAreRead(t *testing.T) {
	var b bytes.Buffer
	for id := range uint64(300) {
		if _, err := protodelim.MarshalTo(&b,
			&ClientFrame{Requests: []*Request{{Call: id + 1, Traceparent: strings.Repeat("s", int(id))}}}); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := readAll(b.Bytes(), MaxFrame)
	if err != io.EOF || len(messages) != 300 {
		t.Fatalf("%d frames, then %v", len(messages), err)
	}
	for i, message := range messages {
		var f ClientFrame
		if err := f.UnmarshalVT(message); err != nil || f.GetRequests()[0].GetCall() != uint64(i+1) {
			t.Fatalf("frame %d: %v %v", i, &f, err)
		}
	}
}

func TestInvalidFramesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames []byte
		want   error
	}{
		{"nothing", nil, io.EOF},
		{"half a length", []byte{0x80}, io.ErrUnexpectedEOF},
		{"half a message", []byte{5, 1, 2}, io.ErrUnexpectedEOF},
		{"a length alone", []byte{5}, io.ErrUnexpectedEOF},
		{"too long", binary.AppendUvarint(nil, 101), ErrFrame},
		{"much too long", binary.AppendUvarint(nil, 1<<63), ErrFrame},
		{"a length without end", bytes.Repeat([]byte{0xff}, 20), ErrFrame},
		{"a web browser", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), io.ErrUnexpectedEOF},
	} {
		if _, err := readAll(c.frames, 100); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A frame with a large announced length and few bytes allocates little.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	in := bufio.NewReader(bytes.NewReader(make([]byte, 100)))
	room := make([]byte, 0, 8)
	got := testing.AllocsPerRun(1, func() {
		if m, err := ReadMessage(in, MaxFrame, room, nil); err == nil || cap(m) > 2*firstPiece {
			t.Errorf("room for %d bytes, %v", cap(m), err)
		}
	})
	if got > 4 {
		t.Errorf("%.0f allocations", got)
	}
}

// FuzzFrames reads frames that no peer of ours sends. The result is an error, or what generated code
// reads, and the checks can judge it.
func FuzzFrames(f *testing.F) {
	var out Outbox
	out.PutFrame(&ClientFrame{Hello: &Hello{Protocol: Protocol, Client: "a client"}})
	out.PutRequest(&Request{Call: 1, Attach: &Session{Id: "k3v9", Ttl: 1e9, Named: []uint64{1, 2, 3}}})
	out.PutRequest(&Request{
		Call:  2,
		Key:   &Key{Session: "k3v9", Epoch: 1},
		Claim: &Want{Id: 1, Targets: []*Target{{Path: "a/b", Mode: Mode_MODE_PERMITS, Units: 1, Limit: 3}}, Wait: -1},
	})
	out.PutRequest(&Request{Call: 3, List: &Query{Meets: "a", Credit: 1}})
	out.PutRequest(&Request{
		Call: 4,
		Key:  &Key{Session: "k3v9", Epoch: 1},
		End:  &Ending{Kind: EndingKind_ENDING_KIND_RELEASE, Id: 1},
	})
	out.PutFlow(&Flow{Call: 3, Credit: 5})
	f.Add(out.Take(nil))
	out.PutFrame(&ServerFrame{Welcome: &Welcome{Protocol: Protocol, Guarantees: &Guarantees{Name: "mem"}}})
	out.PutReply(&Reply{Call: 2, Status: &Status{
		Id:       1,
		Grants:   []*Grant{{Path: "a"}},
		Handle:   NewHandle(3, 1),
		AsAsked:  true,
		Asked:    &Asked{},
		Blockers: []*Blocker{{}},
	}})
	out.PutReply(&Reply{Call: 3, Error: &Error{Code: Code_CODE_SESSION}})
	out.PutReply(&Reply{Call: 4, Lease: &Lease{Epoch: 2, Claims: []*Status{{}}}})
	f.Add(out.Take(nil))
	f.Fuzz(func(t *testing.T, frames []byte) {
		want := lockkeeper.Want{Targets: make([]lockkeeper.Target, 2)}
		messages, _ := readAll(frames, MaxFrame)
		for _, message := range messages {
			if sameRequests(t, message) {
				checkRequests(message)
			}
			sameReplies(t, message, &want)
		}
	})
}

// checkRequests passes every request to the checks of package lockkeeper.
func checkRequests(message []byte) {
	requests, _, _ := handRequests(message)
	for _, m := range requests {
		switch argument := m.Argument.(type) {
		case lockkeeper.Session:
			_ = argument.Check(false)
		case lockkeeper.Want:
			_ = argument.Check()
		case lockkeeper.Ending:
			_ = argument.Check()
		}
	}
}
