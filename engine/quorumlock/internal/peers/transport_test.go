package peers

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

func TestMessagesArriveInOrderAndWhole(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	const messages = 1000
	for i := range uint64(messages) {
		one.Send(call(1, 2, i))
	}
	for i := range uint64(messages) {
		m := two.next()
		if uint64(m.Call) != i || m.From != 1 || m.To != 2 || m.Kind != 1 || !bytes.Equal(m.Request, contents(i)) {
			t.Fatalf("message %d arrives as %d from %d to %d, with %d bytes", i, m.Call, m.From, m.To, len(m.Request))
		}
	}
	s, r := one.status(2), two.status(1)
	if s.Sent != messages || s.Dropped != 0 || !s.Connected || s.Address != two.address || s.Incoming {
		t.Errorf("status of the sender: %+v", s)
	}
	if r.Received != messages || r.ReceivedBytes != s.SentBytes || !r.Incoming || r.Connected || r.Address != "" {
		t.Errorf("status of the receiver: %+v; of the sender: %+v", r, s)
	}
}

func TestBothDirectionsAndRaftMessages(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	two.connect(one)
	one.Send(heartbeat(1, 2, 5))
	two.Send(heartbeat(2, 1, 6))
	if m := two.next(); m.From != 1 || m.Raft.GetTerm() != 5 {
		t.Errorf("node 2 gets %+v", m)
	}
	if m := one.next(); m.From != 2 || m.Raft.GetTerm() != 6 {
		t.Errorf("node 1 gets %+v", m)
	}
}

func TestSenderIsTheNodeOfTheCertificate(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	one.Send(call(99, 2, 4))
	if m := two.next(); m.From != 1 {
		t.Errorf("a message of node 1 that claims to be from node 99 is from node %d", m.From)
	}
}

func TestSendToUnknownNodeIsDropped(t *testing.T) {
	a := newCA(t)
	one := a.start(1, nil)
	one.Send(call(1, 2, 0))
	one.Set(1, one.address) // itself
	one.Set(0, one.address)
	one.Send(call(1, 1, 0))
	if s := one.Status(); len(s) != 0 {
		t.Errorf("it knows peers: %+v", s)
	}
}

func TestSnapshotsArrive(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	for _, size := range []int{0, 1, pieceSize - 20, pieceSize, 5 << 20} {
		sent := snapshot(1, 2, size)
		one.Send(sent)
		m := two.next()
		if m.From != 1 || !bytes.Equal(m.Raft.GetSnapshot().GetData(), sent.Raft.GetSnapshot().GetData()) {
			t.Fatalf("a snapshot of %d bytes arrives with %d, from node %d", size, len(m.Raft.GetSnapshot().GetData()), m.From)
		}
	}
	one.Send(call(1, 2, 1))
	two.next() // now the snapshots are out of the way
	if one.largeSends.used.Load() != 0 || two.largeReceived.used.Load() != 0 {
		t.Error("large messages still count")
	}
}

func TestLargeCallArrives(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	for _, size := range []int{maxFrame - 60, maxFrame - 50, maxFrame - 40, maxFrame, 2 * maxFrame} {
		m := call(1, 2, 1)
		m.Request = make([]byte, size)
		one.Send(m)
		if got := two.next(); len(got.Request) != size {
			t.Fatalf("a call of %d bytes arrives with %d", size, len(got.Request))
		}
	}
}

func TestMessageAboveTheBoundIsRefusedWithWords(t *testing.T) {
	a := newCA(t)
	two := a.start(2, nil)
	one := a.start(1, func(_ *Settings, b *bounds) { b.large = 100_000 })
	one.connect(two)
	one.Send(snapshot(1, 2, 100_000))
	one.log.wait(t, "can't be sent, at most 100000 are allowed", "node=0000000000000002")
	if s := one.status(2); s.Dropped != 1 || !s.Connected || one.largeSends.used.Load() != 0 {
		t.Errorf("status: %+v", s)
	}
	one.Send(call(1, 2, 3))
	if m := two.next(); m.Call != 3 {
		t.Errorf("then arrives %+v", m)
	}
}

func TestChangedAddressConnectsAtOnce(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.Set(2, "127.0.0.1:1") // nobody listens there
	one.log.wait(t, "not connected to a peer", "127.0.0.1:1")
	if s := one.status(2); s.Connected || s.LastError == "" || s.Since.IsZero() {
		t.Errorf("status: %+v", s)
	}
	one.connect(two)
	one.Send(call(1, 2, 1))
	two.next()
	if s := one.status(2); s.Address != two.address || !s.Connected {
		t.Errorf("status: %+v", s)
	}
}

func TestRemovedPeerIsForgotten(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	one.connect(two)
	one.Remove(2)
	two.log.wait(t, "the connection of a peer has ended", "node=0000000000000001")
	one.Send(call(1, 2, 1))
	one.Remove(2)
	if s := one.Status(); len(s) != 0 {
		t.Errorf("it knows peers: %+v", s)
	}
}

func TestConnectionUsesRenewedCertificate(t *testing.T) {
	a := newCA(t)
	one, two := a.start(1, nil), a.start(2, nil)
	a.Replace(one.pair, "node-1.alpha", time.Now().Add(-time.Minute)) // has expired
	one.Set(2, two.address)
	two.log.wait(t, "expired")
	a.Replace(one.pair, "node-1.alpha", time.Now().Add(time.Hour))
	one.log.wait(t, connected)
	one.Send(call(1, 2, 1))
	two.next()
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	a := newCA(t)
	valid := Settings{
		Cluster: "alpha", ID: 1, Credentials: a.credentials(a.node("alpha", 1)), Identify: identify,
		Receive: func([]replica.Message) {},
	}
	for name, spoil := range map[string]func(s *Settings){
		"no cluster":       func(s *Settings) { s.Cluster = "" },
		"id 0":             func(s *Settings) { s.ID = 0 },
		"no function":      func(s *Settings) { s.Receive = nil },
		"negative silence": func(s *Settings) { s.Silence = -1 },
		"another node":     func(s *Settings) { s.ID = 2 },
		"another cluster":  func(s *Settings) { s.Cluster = "beta" },
		"a client": func(s *Settings) {
			s.Credentials = a.credentials(a.Issue("alice", time.Now().Add(time.Hour)))
		},
	} { // order does not matter: each by itself
		s := valid
		spoil(&s)
		if _, err := New(s); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(valid); err != nil {
		t.Error(err)
	}
}

// A node whose address has changed connects to another one, which knows its former address: then that one
// reaches it too, at the address that it states.
func TestNodeIsReachedWhereItListensNow(t *testing.T) {
	a := newCA(t)
	l, former := listen(t), listen(t)
	one := a.start(1, nil)
	two := a.newNode(2, func(s *Settings, _ *bounds) { s.Address = l.Addr().String() })
	one.Set(2, former.Addr().String())
	former.Close()
	two.serve(l)
	one.log.wait(t, `msg="not connected to a peer"`)
	two.connect(one)
	one.log.wait(t, connected)
	one.Send(call(1, 2, 5))
	if m := two.next(); m.From != 1 || m.Call != 5 {
		t.Errorf("node 2 gets %+v", m)
	}
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAddressesThatNoNodeListensAt(t *testing.T) {
	for _, text := range []string{"", "x", "host:1", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:5", "[::]:5", ":5"} {
		if got := parseAddress(text); got != "" {
			t.Errorf("%q is the address %s", text, got)
		}
	}
	if got := parseAddress("[fd00::0:1]:5"); got != "[fd00::1]:5" {
		t.Errorf("got %s", got)
	}
}
