package wire

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of a Cluster.
const (
	MaxNodes     = 64      // addresses
	maxAddress   = 272     // bytes of an address
	maxSuspended = 1 << 10 // bytes of the reason
	maxCluster   = 32 << 10
)

// NewCluster returns what n states as a message within the bounds. It leaves out addresses that no
// client could dial. It returns nil if n has no id: such a server is no node of a cluster.
func NewCluster(n *lockkeeper.ClusterNodes) *Cluster {
	if n.ID == "" || len(n.ID) > MaxName {
		return nil
	}
	m := &Cluster{
		Id: n.ID, Suspended: cutText(n.Suspended, maxSuspended), Outage: n.Outage, QuorumLost: n.QuorumLost,
	}
	for _, address := range n.Addresses {
		if checkAddress(address) == nil && len(m.Addresses) < MaxNodes && !slices.Contains(m.Addresses, address) {
			m.Addresses = append(m.Addresses, address)
		}
	}
	if slices.Contains(m.Addresses, n.Self) {
		m.Self = n.Self
	}
	return m
}

// cutText returns the first bytes of a text, as far as they are whole characters.
func cutText(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// ParseCluster reads a Cluster from a frame, and checks it as Read does.
func ParseCluster(message []byte) (n lockkeeper.ClusterNodes, err error) {
	if len(message) > maxCluster {
		return n, fmt.Errorf("%w: the nodes of the cluster take %d bytes, of at most %d", ErrFrame, len(message),
			maxCluster)
	}
	m := new(Cluster)
	if err := m.UnmarshalVT(message); err != nil {
		return n, invalid(err)
	}
	return m.Read()
}

// Read returns the value of m; the zero value if m is nil. The error is an ErrFrame if m exceeds a
// bound or has an address that can't be dialled.
func (m *Cluster) Read() (n lockkeeper.ClusterNodes, err error) {
	if m == nil {
		return n, nil
	}
	switch {
	case m.Id == "" || len(m.Id) > MaxName:
		err = fmt.Errorf("the id of the cluster has %d bytes: 1 to %d are allowed", len(m.Id), MaxName)
	case len(m.Addresses) > MaxNodes:
		err = fmt.Errorf("the cluster has %d addresses, of at most %d", len(m.Addresses), MaxNodes)
	case len(m.Suspended) > maxSuspended:
		err = fmt.Errorf("the reason to be suspended has %d bytes, of at most %d", len(m.Suspended), maxSuspended)
	case m.Self != "" && !slices.Contains(m.Addresses, m.Self):
		err = fmt.Errorf("the server's own address %q is not among those of the cluster", cutText(m.Self, maxAddress))
	}
	for i := 0; i < len(m.Addresses) && err == nil; i++ {
		err = checkAddress(m.Addresses[i])
	}
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return lockkeeper.ClusterNodes{
		ID:         m.Id,
		Addresses:  m.Addresses,
		Self:       m.Self,
		Suspended:  m.Suspended,
		Outage:     m.Outage,
		QuorumLost: m.QuorumLost,
	}, nil
}

// checkAddress returns an error if a client could not dial the address.
func checkAddress(address string) error {
	if len(address) > maxAddress {
		return fmt.Errorf("the address of a node has %d bytes, of at most %d", len(address), maxAddress)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address %q of a node is not HOST:PORT: %w", address, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("the address %q of a node has the port %q: 1 to 65535 are possible", address, port)
	}
	strange := strings.ContainsFunc(host, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("/@?#,", c)
	})
	if ip, err := netip.ParseAddr(host); host == "" || strange || err == nil && ip.IsUnspecified() {
		return fmt.Errorf("the address %q of a node names no host", address)
	}
	return nil
}
