package quorumlock

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A Config is what the owner of a node decides.
type Config struct {
	// Name is unique in the cluster: see CheckName. Found and Join need it; Open reads it in the folder.
	Name string

	// Listen is the address of the listener for other nodes and for new ones: HOST:PORT, or :PORT. Only
	// Open listens; with "", at the address that the cluster knows.
	Listen string

	// Advertise is where other nodes reach Listen: an IP address and a port, such as 10.0.0.1:7430. ""
	// means Listen, which then has to be such an address; Found and Join refuse another one. If Open
	// gets another address than the cluster knows, the node states the new one to the nodes that it
	// reaches, and the cluster notes it. One node that it knows must have kept its address.
	Advertise string

	// ClientAddress is where clients reach the node, HOST:PORT; "" if they don't, or for Open: if it is
	// as before.
	ClientAddress string

	// Open: the server of this node does not authenticate its clients. It is an alarm if others do.
	Open bool

	// Rank of a new node, for Found and Join; see Engine.SetRank. The zero value votes and leads first.
	Rank Rank

	Logger *slog.Logger // may be nil

	// Audit is called while this node leads, for what an audit log has to know. It must not wait, and must
	// not call a method of the Engine. It may be nil.
	Audit func(AuditEvent)

	certificateLife time.Duration // for tests; 0: join.CertificateLife
}

// A Rank says how much a node should vote and lead. 0 votes first and leads whenever it can; 15 votes
// only if there are too few others; RankOff never votes.
type Rank = voters.Rank

const (
	// DefaultRank is the rank of a node whose operator has no preference.
	DefaultRank Rank = 8
	// RankOff is the rank of a node that never votes, and so never leads.
	RankOff = voters.Off
)

// ParseRank reads a rank as people write it: 0 to 15, or "off".
func ParseRank(text string) (Rank, error) { return voters.ParseRank(text) }

// CheckName returns an error that says what would be right if name is no name for a node.
func CheckName(name string) error { return join.CheckName(name) }

// log returns the logger, which is never nil.
func (c *Config) log() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// address returns where other nodes reach this one; the zero address if Listen does not say it.
func (c *Config) address() (netip.AddrPort, error) {
	text := c.Advertise
	if text == "" {
		text = c.Listen
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
		if c.Advertise == "" {
			return netip.AddrPort{}, nil
		}
		return a, lockkeeper.Invalid("%q is no address at which other nodes reach this one: name an IP address and a port, "+
			"such as 10.0.0.1:7430", text)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// newNode returns the node that Found or Join makes.
func (c *Config) newNode() (join.Node, error) {
	n := join.Node{Name: c.Name, Rank: c.Rank, Clients: c.ClientAddress, Open: c.Open}
	var err error
	if n.Address, err = c.address(); err != nil {
		return n, err
	}
	if !n.Address.IsValid() {
		return n, lockkeeper.Invalid("%q does not say where other nodes reach this one: advertise an IP address and a port, "+
			"such as 10.0.0.1:7430", c.Listen)
	}
	return n, nil
}
