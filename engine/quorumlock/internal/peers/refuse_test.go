package peers

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// refused starts a node with other credentials, and expects that it gets no connection to a node of
// alpha, whose log has the reason.
func refused(t *testing.T, a, other *ca, pair testca.Pair, change func(*Settings), reason string) {
	t.Helper()
	two := a.start(2, nil)
	one := a.newNode(1, nil)
	one.settings.Credentials = other.credentials(pair)
	if change != nil {
		change(&one.settings)
	}
	t.Cleanup(one.Close)
	one.Set(2, two.address)
	two.log.wait(t, "a connection of a peer is refused", reason)
	one.log.wait(t, "not connected to a peer")
	if one.status(2).Connected || len(two.Status()) != 0 || two.RefusedConnections() == 0 {
		t.Errorf("they are connected: %+v, %+v", one.Status(), two.Status())
	}
}

func TestClientCertificateIsRefused(t *testing.T) {
	a := newCA(t)
	refused(t, a, a, a.Issue("alice", time.Now().Add(time.Hour)), nil, "is no node")
}

func TestOtherClusterIsRefused(t *testing.T) {
	a := newCA(t)
	refused(t, a, a, a.node("beta", 1), nil, "cluster")
}

func TestOwnIDIsRefused(t *testing.T) {
	a := newCA(t)
	refused(t, a, a, a.node("alpha", 2), func(s *Settings) { s.ID = 3 }, "which is this node itself")
}

// A node makes connections and accepts them, so its certificate has to be good for both.
func TestCertificateForOneSideIsRefusedOnTheOther(t *testing.T) {
	a := newCA(t)
	a.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serves := a.node("alpha", 1)
	a.Usages = nil
	refused(t, a, a, serves, nil, "incompatible key usage")
}

func TestOtherAuthorityIsRefused(t *testing.T) {
	a, other := newCA(t), newCA(t)
	// The caller accepts the node, which does not accept the caller.
	refused(t, a, a, other.node("alpha", 1), nil, "certificate signed by unknown authority")
}

func TestCallerRefusesOtherAuthority(t *testing.T) {
	a, other := newCA(t), newCA(t)
	two := other.start(2, nil)
	one := a.start(1, nil)
	one.Set(2, two.address)
	one.log.wait(t, "not connected to a peer", "certificate signed by unknown authority")
}

func TestCallerRefusesOtherNodeAtTheAddress(t *testing.T) {
	a := newCA(t)
	one, three := a.start(1, nil), a.start(3, nil)
	one.Set(2, three.address)
	one.log.wait(t, "not connected to a peer", "is node 0000000000000003, and not node 0000000000000002")
}

// refuses refuses the node with that id.
func refuses(id *atomic.Uint64) func(*x509.Certificate) error {
	return func(c *x509.Certificate) error {
		if _, asks, _ := identify(c); asks == id.Load() {
			return fmt.Errorf("node %d was removed", asks)
		}
		return nil
	}
}

func TestExpelledNodeIsDisconnected(t *testing.T) {
	a := newCA(t)
	var expelled atomic.Uint64
	one := a.start(1, nil)
	two := a.start(2, func(s *Settings, _ *bounds) { s.Allow = refuses(&expelled) })
	one.connect(two)
	two.connect(one)
	expelled.Store(1)
	two.CheckAllowed()
	two.log.wait(t, "the connection of a peer has ended", "node 1 was removed")
	two.log.wait(t, "not connected to a peer", "node 1 was removed")
	one.log.wait(t, "not connected to a peer", "it refuses this node: node 1 was removed")
	two.log.wait(t, "a connection of a peer is refused", "node 1 was removed")
	one.log.clear()
	expelled.Store(0)
	one.log.wait(t, connected, "node=0000000000000002")
	one.Send(call(1, 2, 1))
	two.next()
}

// If Allow changes after the handshake asked it, and CheckAllowed runs before the connection is known,
// the connection must not live on.
func TestNodeExpelledDuringItsHandshakeIsRefused(t *testing.T) {
	a := newCA(t)
	var asked atomic.Int32
	two := a.start(2, func(s *Settings, _ *bounds) {
		s.Allow = func(*x509.Certificate) error {
			if asked.Add(1) > 1 {
				return errors.New("removed meanwhile")
			}
			return nil
		}
	})
	one := a.start(1, nil)
	one.Set(2, two.address)
	one.log.wait(t, "not connected to a peer", "it refuses this node: removed meanwhile")
	if len(two.Status()) != 0 {
		t.Errorf("it has a connection: %+v", two.Status())
	}
}

// The same at the node that makes the connection: it asks in the handshake, and again when CheckAllowed
// sees the connection.
func TestCallerEndsConnectionToNodeExpelledMeanwhile(t *testing.T) {
	a := newCA(t)
	var asked atomic.Int32
	one := a.newNode(1, func(s *Settings, _ *bounds) {
		s.Allow = func(*x509.Certificate) error {
			if asked.Add(1) > 1 {
				return errors.New("removed meanwhile")
			}
			return nil
		}
	})
	t.Cleanup(one.Close)
	two := a.start(2, nil)
	one.Set(2, two.address)
	one.log.wait(t, "not connected to a peer", "removed meanwhile")
	if one.status(2).Connected {
		t.Errorf("it has a connection: %+v", one.Status())
	}
}

func TestUnknownFormIsRefusedWithWordsOnBothSides(t *testing.T) {
	a := newCA(t)
	one, two := a.newNode(1, nil), a.start(2, nil)
	one.forms = forms{7, 9}
	t.Cleanup(one.Close)
	one.Set(2, two.address)
	const words = "node 0000000000000002 knows the forms 1 to 1 of messages between nodes, " +
		"and node 0000000000000001 the forms 7 to 9"
	two.log.wait(t, "refused", words)
	one.log.wait(t, "not connected", "it refuses this node", words)
}

func TestFormInCommonIsChosen(t *testing.T) {
	for _, c := range []struct {
		caller, called forms
		want           uint64 // 0: refused
	}{
		{forms{1, 1}, forms{1, 1}, 1},
		{forms{1, 2}, forms{2, 3}, 2},
		{forms{2, 5}, forms{1, 3}, 3},
		{forms{1, 1}, forms{2, 3}, 0},
		{forms{4, 4}, forms{2, 3}, 0},
		{forms{0, 0}, forms{1, 1}, 0},
	} {
		form, err := choose(c.caller, c.called)
		if form != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("caller %v, called %v: form %d, %v", c.caller, c.called, form, err)
		}
	}
}

func TestRefusalOfAnyLengthCanBeRead(t *testing.T) {
	f := refusal(errors.New(strings.Repeat("x", 5000)))
	if f.SizeVT() > maxAnswer {
		t.Errorf("a refusal of %d bytes, the peer reads %d", f.SizeVT(), maxAnswer)
	}
}
