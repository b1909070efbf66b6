package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/remote"
)

// The default ports of a server.
const (
	serverPort = 7420
	httpPort   = 7421
)

// An endpoint is one of a server's addresses, as the user names it by a flag.
type endpoint struct {
	flag   string // --listen, or --http
	text   string // its value; "" is loopback with the default port
	port   uint16 // if the text names none
	beyond bool   // other machines may reach it
}

// listenAddress is an address as the user wrote it.
type listenAddress struct {
	host string // a name, an IP address, or empty: every address of this machine
	port uint16 // 0: any free port
}

func (l listenAddress) String() string { return net.JoinHostPort(l.host, strconv.Itoa(int(l.port))) }

// parse reads HOST:PORT or HOST. Unless on.beyond, it refuses addresses that other machines can
// reach; allowed checks a name after its lookup.
func (on endpoint) parse() (listenAddress, error) {
	if isNumber(on.text) {
		return listenAddress{}, fmt.Errorf("%s %s is a port alone: write HOST:PORT, such as :%s for every address of this "+
			"machine, or 127.0.0.1:%s", on.flag, on.text, on.text, on.text)
	}
	host, port, err := net.SplitHostPort(on.text)
	if err != nil { // no port
		bare := on.text
		if inner, ok := strings.CutPrefix(on.text, "["); ok {
			bare = strings.TrimSuffix(inner, "]")
		}
		host, port, err = net.SplitHostPort(net.JoinHostPort(bare, strconv.Itoa(int(on.port))))
	}
	number, wrong := strconv.ParseUint(port, 10, 16)
	ip, noIP := netip.ParseAddr(host)
	if err != nil || wrong != nil || noIP != nil && strings.Contains(host, ":") {
		return listenAddress{}, fmt.Errorf("%s %q: write HOST:PORT, such as 127.0.0.1:%d or [::1]:0; port 0 is any that "+
			"is free", on.flag, on.text, on.port)
	}
	l := listenAddress{host, uint16(number)}
	if exposed := host == "" || noIP == nil && !ip.Unmap().IsLoopback(); exposed && !on.beyond {
		return l, on.errExposed(on.text)
	}
	return l, nil
}

// errExposed returns the error of an address that other machines can reach, with the alternatives.
func (on endpoint) errExposed(what string) error {
	return fmt.Errorf("%s %s can be reached from other machines, and anybody who reaches it can take and end locks. "+
		"Require clients to authenticate, over TLS: --tls-cert and --tls-key with --tokens or --client-ca (lk ca and lk "+
		"token make what that needs); "+
		"or serve this machine alone, with %s 127.0.0.1:%d; or add --insecure if you trust all who can reach it", on.flag,
		what, on.flag, on.port)
}

// all listens on the given address; without one, on both loopback addresses.
func (on endpoint) all(ctx context.Context, a *app) ([]net.Listener, error) {
	l, ips, err := on.addresses(ctx)
	if err != nil {
		return nil, err
	}
	var all []net.Listener
	for _, host := range ips {
		to := listenAddress{host, l.port}
		if l.port == 0 && len(all) > 0 {
			to.port = uint16(all[0].Addr().(*net.TCPAddr).Port)
		}
		listener, err := net.Listen("tcp", to.String())
		if err != nil && len(ips) > 1 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue // a machine without IPv6, or without IPv4
		}
		if err != nil {
			closeAll(all)
			return nil, on.failed(ctx, a, to, err)
		}
		all = append(all, listener)
	}
	if len(all) == 0 {
		return nil, &exit{code: exitUnavailable, say: fmt.Errorf("can't listen on %s: this machine has none of its "+
			"addresses: %s", on.text, strings.Join(ips, ", "))}
	}
	return all, nil
}

// addresses returns the port and the IP addresses to listen on. Unless on.beyond, no other machine
// can reach them.
func (on endpoint) addresses(ctx context.Context) (l listenAddress, ips []string, err error) {
	if on.text == "" {
		return listenAddress{port: on.port}, []string{"127.0.0.1", "::1"}, nil
	}
	if l, err = on.parse(); err != nil {
		return l, nil, err
	}
	if _, err := netip.ParseAddr(l.host); err == nil || l.host == "" {
		return l, []string{l.host}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", l.host)
	if err != nil {
		return l, nil, &exit{code: exitUnavailable, say: fmt.Errorf("can't listen on %s: %w", on.text, err)}
	}
	ips, err = on.allowed(found)
	return l, ips, err
}

// allowed returns the addresses of a name, each once. Unless on.beyond, an address that other
// machines can reach is an error.
func (on endpoint) allowed(found []netip.Addr) (ips []string, err error) {
	for _, ip := range found {
		ip = ip.Unmap()
		if !ip.IsLoopback() && !on.beyond {
			return nil, &exit{code: exitUsage, say: on.errExposed(fmt.Sprintf("%s (%s)", on.text, ip))}
		}
		if !slices.Contains(ips, ip.String()) {
			ips = append(ips, ip.String())
		}
	}
	return ips, nil
}

// probeTime bounds the check whether a Lockkeeper server has the port.
const probeTime = time.Second

// failed returns the error of a failed listen, with a remedy.
func (on endpoint) failed(ctx context.Context, a *app, l listenAddress, cause error) error {
	say := func(format string, args ...any) error {
		return &exit{code: exitUnavailable, say: fmt.Errorf("can't listen on %s: %s", l, fmt.Sprintf(format, args...))}
	}
	switch {
	case errors.Is(cause, syscall.EADDRINUSE):
		by := "the port is in use"
		if owner := portOwner(l.port); owner != "" {
			by += " by " + owner
		}
		another := fmt.Sprintf("%s 127.0.0.1:0", on.flag)
		if on.port == serverPort && a.answers(ctx, l) {
			return say("%s, and a Lockkeeper server answers there already. To use that one: export %s=lk://%s; to start "+
				"another one: %s, and a --data of its own", by, engineVariable, l, another)
		}
		return say("%s. End that, or name another port, such as %s for any that is free", by, another)
	case errors.Is(cause, syscall.EACCES):
		return say("you may not. Name a port above 1023, such as %d", on.port)
	case errors.Is(cause, syscall.EADDRNOTAVAIL):
		return say("this machine has no such address")
	}
	return say("%s", cause)
}

// answers reports whether a Lockkeeper server answers at an address.
func (a *app) answers(ctx context.Context, l listenAddress) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	e, err := a.open(ctx, remote.URL(l.String(), false))
	if err == nil {
		e.Close()
	}
	return err == nil
}

// usableAddress returns the address of a listener for clients. A listener on every address of this
// machine gets the machine's name.
func usableAddress(listens net.Addr) string {
	at := listens.(*net.TCPAddr)
	if host, err := os.Hostname(); at.IP.IsUnspecified() && err == nil {
		return net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
	return at.String()
}

// certifiedAddress is usableAddress with a name for which the certificate is valid: a loopback name
// for a server on loopback, else one that other machines can use.
func certifiedAddress(listens net.Addr, c *x509.Certificate) string {
	at := listens.(*net.TCPAddr)
	usable, _, _ := net.SplitHostPort(usableAddress(listens)) // always HOST:PORT
	names := []string{usable}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	names = slices.Insert(names, 1, c.DNSNames...)
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.Contains(name, "*") || c.VerifyHostname(name) != nil
	})
	if len(names) == 0 {
		return at.String()
	}
	best := slices.IndexFunc(names, func(name string) bool {
		ip := net.ParseIP(name)
		return (name == "localhost" || ip != nil && ip.IsLoopback()) == at.IP.IsLoopback()
	})
	return net.JoinHostPort(names[max(best, 0)], strconv.Itoa(at.Port))
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
