package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A Message goes from one node to another. It may get lost, arrive late, twice, or after its
// successors. Its receiver must know for certain that it comes from the node From.
type Message struct {
	From, To uint64
	Kind     Kind

	Raft *pb.Message // of kind 0

	// Of all other kinds: a call, by the process that has it and the number of its sending, which no other
	// call of the process has.
	Incarnation uint64
	Call        CallID
	Attempt     uint64
	Term        uint64  // of a call: in which the receiver leads, as far as the sender knows
	Caller      Caller  // of a call
	Request     []byte  // of a call
	Text        string  // of a refusal: why
	Refusal     refusal // of a denial
}

// Kind is the kind of a Message. Kind 0 is a message of raft.
type Kind uint8

const (
	kindCall       Kind = iota + 1 // to the leader
	kindNotLeading                 // the answer of a node that does not lead: the call was not made
	kindBusy                       // the leader has too many calls: the call was not made
	kindInvalid                    // the leader refuses the call
	kindDenied                     // the policy of the cluster denies the call: it was not made
	kinds
)

// MarshalBinary returns the message without From and To:
//
//	message = kind, then for kind 0 the message of raft, else
//	          incarnation call attempt, then for a call its term, its caller and the request, for a denial
//	          what was decided and the text, else the text
//	caller  = length name length from undecided, a byte: 0 or 1
//	denial  = code length path text
func (m *Message) MarshalBinary() ([]byte, error) {
	b := []byte{byte(m.Kind)}
	if m.Kind == 0 {
		return proto.MarshalOptions{}.MarshalAppend(b, m.Raft)
	}
	b = binary.AppendUvarint(b, m.Incarnation)
	b = binary.AppendUvarint(b, uint64(m.Call))
	b = binary.AppendUvarint(b, m.Attempt)
	switch m.Kind {
	case kindCall:
		b = binary.AppendUvarint(b, m.Term)
		b = append(appendCaller(b, &m.Caller), m.Request...)
	case kindDenied:
		b = appendText(append(b, m.Refusal.code), string(m.Refusal.path))
	}
	return append(b, m.Text...), nil
}

// UnmarshalBinary reads what MarshalBinary wrote. The caller sets From and To.
func (m *Message) UnmarshalBinary(b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	m.Kind, b = Kind(b[0]), b[1:]
	switch {
	case m.Kind == 0:
		m.Raft = new(pb.Message)
		return proto.Unmarshal(b, m.Raft)
	case m.Kind >= kinds:
		return fmt.Errorf("messages of kind %d are unknown", m.Kind)
	}
	var call uint64
	for _, number := range []*uint64{&m.Incarnation, &call, &m.Attempt} {
		var err error
		if *number, b, err = cutNumber(b); err != nil {
			return err
		}
	}
	m.Call = CallID(call)
	var err error
	switch m.Kind {
	case kindCall:
		if m.Term, b, err = cutNumber(b); err == nil {
			m.Caller, m.Request, err = cutCaller(b)
		}
	case kindDenied:
		m.Refusal, b, err = cutRefusal(b)
		fallthrough
	default:
		m.Text = string(b)
	}
	return err
}

// Receive is the input of a message from another node. An error says what is wrong with the message,
// which then had no effect.
func (r *Replica) Receive(now time.Duration, m Message) error {
	if !r.begin(now) {
		return nil
	}
	switch {
	case m.To != r.config.ID || m.From == m.To || m.From == 0:
		return fmt.Errorf("a message from node %d to node %d can't come to node %d", m.From, m.To, r.config.ID)
	case m.Kind == kindCall:
		r.receiveCall(&m)
	case m.Kind != 0:
		r.receiveRefusal(&m)
	default:
		if err := r.checkRaft(&m); err != nil {
			if errors.Is(err, ErrVersion) {
				r.fail(err)
			}
			return fmt.Errorf("message %s of node %d: %w", m.Raft.GetType(), m.From, err)
		}
		r.receiveRaft(m.Raft)
	}
	r.settle()
	return nil
}

// receiveRaft gives raft a checked message, unless the node can't take it now. Raft repeats messages
// that get lost.
func (r *Replica) receiveRaft(m *pb.Message) {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgSnap:
		if r.writes.bytes > r.config.MaxUnwritten {
			return
		}
	case pb.MsgTimeoutNow, pb.MsgVoteResp, pb.MsgPreVoteResp: // which could make this node lead
		if _, stuck := r.Stuck(); stuck && !r.lead.leading {
			return
		}
	case pb.MsgReadIndex:
		if !r.lead.ready || !r.stillLeads() {
			return
		}
	}
	r.contact.note(r, m)
	r.protect(func() { _ = r.node.Step(m) }) // an error says that the sender is not in the configuration
}

// checkRaft returns an error if no healthy node sends such a message. Raft itself believes what it
// gets.
func (r *Replica) checkRaft(m *Message) error {
	x := m.Raft
	if x.GetFrom() != m.From || x.GetTo() != m.To {
		return fmt.Errorf("it claims to be from node %d to node %d", x.GetFrom(), x.GetTo())
	}
	if len(x.GetResponses()) > 0 {
		return errors.New("it has responses, which only go to a disk")
	}
	switch x.GetType() {
	case pb.MsgReadIndex, pb.MsgReadIndexResp:
		if len(x.GetEntries()) != 1 {
			return errors.New("it does not have one context")
		}
		return nil
	case pb.MsgSnap:
		if _, err := r.readSnapshot(x.GetSnapshot()); err != nil {
			return err
		}
	case pb.MsgApp:
		if err := checkEntries(x); err != nil {
			return err
		}
	case pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeat,
		pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
	default:
		return errors.New("no node may send that: a proposal is the leader's own")
	}
	if x.GetTerm() == 0 {
		return errors.New("it has no term")
	}
	return nil
}

func checkEntries(m *pb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("entry %d of term %d follows entry %d of term %d", e.GetIndex(), e.GetTerm(), index, term)
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return nil
}
