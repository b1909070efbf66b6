package main

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Addresses that other machines can reach are refused, and loopback addresses are not.
func TestParseListen(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7420":       "127.0.0.1:7420",
		"127.0.0.1":            "127.0.0.1:7420",
		"127.9.9.9:0":          "127.9.9.9:0",
		"[::1]:80":             "[::1]:80",
		"::1":                  "[::1]:7420",
		"[::1]":                "[::1]:7420",
		"[::ffff:127.0.0.1]:1": "[::ffff:127.0.0.1]:1", "localhost": "localhost:7420", "somewhere:99": "somewhere:99",
		"":                     "to authenticate",
		":7420":                "to authenticate",
		"0.0.0.0":              "to authenticate",
		"[::]:1":               "to authenticate",
		"192.0.2.1:7420":       "to authenticate",
		"[::ffff:192.0.2.1]:1": "to authenticate", "128.0.0.1": "to authenticate",
		"127.0.0.1:http":  "write HOST:PORT",
		"127.0.0.1:65536": "write HOST:PORT",
		"127.0.0.1:-1":    "write HOST:PORT",
		"1:2:3":           "write HOST:PORT",
		"a:b:c":           "write HOST:PORT",
		"7520":            "write HOST:PORT, such as :7520",
	} {
		on := endpoint{flag: "--listen", text: text, port: serverPort}
		l, err := on.parse()
		exposed := strings.HasPrefix(want, "prove")
		switch {
		case err == nil && l.String() != want, err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%q: %s, %v; want %s", text, l, err, want)
		case exposed:
			on.beyond = true
			if _, err := on.parse(); err != nil {
				t.Errorf("%q with --insecure: %v", text, err)
			}
		}
	}
}

// lk serve listens on all addresses of a name, at the same port, even if port 0 chooses a free one.
func TestListenAll(t *testing.T) {
	a := &app{}
	for _, name := range []string{"localhost:0", "127.0.0.1:0"} {
		all, err := endpoint{text: name}.all(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			at := l.Addr().(*net.TCPAddr)
			if !at.IP.IsLoopback() || at.Port == 0 || at.Port != all[0].Addr().(*net.TCPAddr).Port {
				t.Errorf("%s: listens on %s, and on %s", name, at, all[0].Addr())
			}
		}
		closeAll(all)
	}
}

// The lookup finds a name of this machine that other machines can reach.
func TestListenOnANameThatIsReached(t *testing.T) {
	found := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.1"),
		netip.MustParseAddr("192.0.2.1")}
	on := endpoint{flag: "--listen", text: "host", port: serverPort}
	ips, err := on.allowed(found)
	var e *exit
	if !errors.As(err, &e) || e.code != exitUsage ||
		!strings.Contains(err.Error(), "host (192.0.2.1) can be reached from other machines") {
		t.Errorf("%v, %v", ips, err)
	}
	if ips, err := on.allowed(found[:2]); err != nil || len(ips) != 1 {
		t.Errorf("%v, %v: want 127.0.0.1 once", ips, err)
	}
}

// The address of a server with TLS has a name of its certificate by which clients can reach it.
func TestCertifiedAddress(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	every, loopback, other := net.IPv4zero, net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 1)
	for _, c := range []struct {
		listens net.IP
		names   []string
		ips     []net.IP
		want    string
	}{
		{every, []string{"localhost", "locks.example.org"}, []net.IP{loopback}, "locks.example.org:7"},
		{every, []string{"localhost", "locks.example.org", host}, nil, host + ":7"},
		{every, []string{"localhost"}, []net.IP{loopback, other}, "192.0.2.1:7"},
		{every, []string{"localhost"}, []net.IP{loopback}, "localhost:7"},
		{every, []string{"*.example.org"}, []net.IP{net.ParseIP("2001:db8::1")}, "[2001:db8::1]:7"},
		{other, []string{"localhost", "locks.example.org"}, nil, "locks.example.org:7"},
		{other, nil, []net.IP{other}, "192.0.2.1:7"},
		{loopback, []string{"locks.example.org", "localhost"}, nil, "localhost:7"},
		{loopback, []string{"locks.example.org"}, []net.IP{loopback}, "127.0.0.1:7"},
		{loopback, []string{"locks.example.org"}, nil, "locks.example.org:7"},
		{other, nil, nil, "192.0.2.1:7"},
	} {
		cert := &x509.Certificate{DNSNames: c.names, IPAddresses: c.ips}
		if got := certifiedAddress(&net.TCPAddr{IP: c.listens, Port: 7}, cert); got != c.want {
			t.Errorf("on %s, for %q and %s: %s, want %s", c.listens, c.names, c.ips, got, c.want)
		}
	}
}
