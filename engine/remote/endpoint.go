package remote

import (
	"net"
	"net/url"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// An endpoint is a parsed URL: addresses of servers, and names of credential files. The files are
// read for each connection.
type endpoint struct {
	addresses []string
	secure    bool   // TLS
	ca        string // file of the authorities that sign servers' certificates; "" is those of the system
	cert, key string // files of the client's own certificate; "" is none
	token     string // file of the token; "" takes the one of the environment
}

// parse parses a URL of Open.
func parse(text string) (*endpoint, error) {
	p := new(endpoint)
	rest, secure := strings.CutPrefix(text, "lks://")
	if p.secure = secure; !secure {
		rest = strings.TrimPrefix(text, "lk://")
	}
	addresses, query, _ := strings.Cut(rest, "?")
	if err := p.readAddresses(addresses); err != nil {
		return nil, err
	}
	return p, p.readQuery(query)
}

// scheme returns the beginning of the URL.
func (p *endpoint) scheme() string {
	if p.secure {
		return "lks://"
	}
	return "lk://"
}

// maxAddresses bounds the addresses of one URL.
const maxAddresses = 16

// readAddresses parses the addresses.
func (p *endpoint) readAddresses(addresses string) error {
	for address := range strings.SplitSeq(addresses, ",") {
		host, port, err := net.SplitHostPort(address)
		if err != nil { // no port, or no address at all
			host, port, err = net.SplitHostPort(address + ":" + DefaultPort)
		}
		if err != nil || host == "" || port == "" || strings.ContainsAny(host, "/@?# ") {
			return lockkeeper.Invalid("address %q: write a host and, if it is not %s, its port: such as "+
				"lk://locks.example.org:7420 or lk://[::1]:7420", address, DefaultPort)
		}
		if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
			return lockkeeper.Invalid("address %q: %q is no port: 1 to 65535", address, port)
		}
		p.addresses = append(p.addresses, net.JoinHostPort(host, port))
	}
	if len(p.addresses) > maxAddresses {
		return lockkeeper.Invalid("%d addresses: at most %d are allowed", len(p.addresses), maxAddresses)
	}
	return nil
}

// readQuery parses the part after the question mark.
func (p *endpoint) readQuery(query string) error {
	files := map[string]*string{"token": &p.token}
	if p.secure {
		files["ca"], files["cert"], files["key"] = &p.ca, &p.cert, &p.key
	}
	if query == "" {
		return nil
	}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		file, known := files[name]
		switch {
		case !known && (name == "ca" || name == "cert" || name == "key"):
			return lockkeeper.Invalid("?%s= is for TLS, which lk:// does not use: write lks://%s?%s", name,
				strings.Join(p.addresses, ","), query)
		case !known && p.secure:
			return lockkeeper.Invalid("?%s= is not known: after lks://HOST may follow ca=FILE, cert=FILE, key=FILE and "+
				"token=FILE, with & between", name)
		case !known:
			return lockkeeper.Invalid("?%s= is not known: after lk://HOST may follow token=FILE alone", name)
		case *file != "":
			return lockkeeper.Invalid("?%s= is there twice", name)
		}
		decoded, err := url.PathUnescape(value)
		if err != nil || decoded == "" {
			return lockkeeper.Invalid("?%s= names no file: write %s=FILE, with %%25 for a percent sign and %%26 for &", name,
				name)
		}
		*file = decoded
	}
	if (p.cert == "") != (p.key == "") {
		return lockkeeper.Invalid("?cert= and ?key= go together: a certificate needs its key")
	}
	return nil
}

// check returns an error if a file that the URL names, or a variable, is invalid now.
func (p *endpoint) check() error {
	token, err := p.credential()
	if err != nil {
		return lockkeeper.Invalid("%s", err)
	}
	if p.secure {
		if _, err := p.trust(p.addresses[0]); err != nil {
			return lockkeeper.Invalid("%s", err)
		}
		return nil
	}
	for _, address := range p.addresses {
		host, _, _ := net.SplitHostPort(address)
		if ip := net.ParseIP(host); token != "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return p.inTheClear(address)
		}
	}
	return nil
}

// inTheClear refuses to send a token over a network without TLS.
func (p *endpoint) inTheClear(address string) error {
	return lockkeeper.Invalid("the token of %s would cross the network to %s without encryption: write lks://%s, or "+
		"omit the token if that server needs none", p.origin(), address, address)
}
