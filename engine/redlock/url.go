package redlock

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkeeper/lockkeeper"
)

// passwordVariable is where redis-cli takes the password from.
const passwordVariable = "REDISCLI_AUTH"

const (
	defaultPort   = "6379"
	defaultPrefix = "lockkeeper:"
	maxPrefix     = 64
	maxDatabase   = 1 << 20
	maxFile       = 1 << 20 // bytes of a certificate, key or password file
)

// address is a URL in its parts.
type address struct {
	secure bool // rediss
	hosts  []host

	prefix       string
	existing     bool // create=off: make no set
	passwordFile string
	ca           string
	cert, key    string
}

// host is one server of a URL. User, password and database of the first host count for those that
// state none.
type host struct {
	address        string // host:port
	user, password string
	named          bool // it has a user or a password of its own
	database       int
}

// Check returns an ErrInvalid with everything that is wrong with the URL, as lockkeeper.CheckURL; nil
// if it is valid. It connects to nothing, and reads no file.
func Check(text string) error {
	_, err := parse(text)
	return err
}

// urlParser collects the faults of a URL.
type urlParser struct {
	address
	faults []string
}

func (p *urlParser) faultf(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// parse returns what a URL names, and refuses wrong URLs.
func parse(text string) (address, error) {
	p := urlParser{address: address{prefix: defaultPrefix}}
	scheme, rest, found := strings.Cut(text, "://")
	p.secure = scheme == "rediss"
	if scheme != "redis" && scheme != "rediss" || !found || rest == "" {
		name, meant, _ := strings.Cut(text, ":")
		return p.address, lockkeeper.Invalid("engine %q names no Redis server: write %s://%s", lockkeeper.RedactURL(text),
			cmp.Or(name, "redis"), cmp.Or(strings.TrimLeft(meant, "/"), "HOST, or three servers as HOST,HOST,HOST"))
	}
	servers, query, _ := strings.Cut(rest, "?")
	for i, part := range strings.Split(servers, ",") {
		p.host(i, part)
	}
	if query != "" {
		for part := range strings.SplitSeq(query, "&") {
			p.parameter(part)
		}
	}
	p.together()
	if len(p.faults) > 0 {
		return p.address, lockkeeper.Invalid("engine %q: %s", lockkeeper.RedactURL(text), strings.Join(p.faults, "; "))
	}
	return p.address, nil
}

// host reads one server: [user[:password]@]host[:port][/database]. Faults never quote a password.
func (p *urlParser) host(i int, part string) {
	h := host{}
	which := fmt.Sprintf("server %d", i+1)
	if at := strings.LastIndexByte(part, '@'); at >= 0 {
		user, password, _ := strings.Cut(part[:at], ":")
		var err1, err2 error
		h.user, err1 = url.PathUnescape(user)
		h.password, err2 = url.PathUnescape(password)
		h.named = true
		if err1 != nil || err2 != nil {
			p.faultf("the user or the password of %s can't be read: write %%25 for a %%", which)
		}
		part = part[at+1:]
	} else if i > 0 {
		first := p.hosts[0]
		h.user, h.password, h.named, h.database = first.user, first.password, first.named, first.database
	}
	part, database, stated := strings.Cut(part, "/")
	if n, err := strconv.Atoi(database); stated && database != "" {
		if err != nil || n < 0 || n > maxDatabase {
			p.faultf("the database of %s is a number, such as /0 (%s)", which, inPasswords)
		}
		h.database = n
	}
	h.address = p.endpoint(which, part)
	p.hosts = append(p.hosts, h)
}

// inPasswords explains a frequent reason why a URL is read differently than meant.
const inPasswords = "a , or / or @ in a password is written %2C, %2F, %40"

// endpoint returns host:port.
func (p *urlParser) endpoint(which, text string) string {
	name, port := text, defaultPort
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		name, port = text[:i], text[i+1:]
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		p.faultf("the port of %s is a number from 1 to 65535 (%s)", which, inPasswords)
	}
	if name == "" || strings.ContainsAny(name, " \t\n") || strings.Contains(name, ":") && net.ParseIP(name) == nil {
		p.faultf("%s has no host: write HOST or HOST:PORT, and an IPv6 address in [ ]", which)
	}
	return net.JoinHostPort(name, port)
}

// parameter reads one parameter.
func (p *urlParser) parameter(part string) {
	name, raw, _ := strings.Cut(part, "=")
	value, err := url.QueryUnescape(raw)
	if err != nil {
		p.faultf("the parameter %s can't be read: write %%25 for a %%", name)
		return
	}
	files := map[string]*string{"password_file": &p.passwordFile, "ca": &p.ca, "cert": &p.cert, "key": &p.key}
	switch to, isFile := files[name]; {
	case isFile && value == "":
		p.faultf("%s names no file", name)
	case isFile && *to != "":
		p.faultf("%s is there twice", name)
	case isFile:
		*to = value
	case name == "prefix":
		p.prefix = value
		if value == "" || len(value) > maxPrefix || strings.ContainsFunc(value, notInPrefix) {
			p.faultf("prefix has 1 to %d letters, digits and :-_./, such as prefix=locks:", maxPrefix)
		}
	case name == "create":
		if p.existing = value == "off"; !p.existing && value != "on" {
			p.faultf("create is on or off")
		}
	case name == "password" || name == "user" || name == "username" || name == "db":
		p.faultf("it has no parameter %s: write redis://USER:PASSWORD@HOST/DATABASE; a password can be in %s or in "+
			"password_file=FILE too", name, passwordVariable)
	default:
		p.faultf("it has no parameter %q: there are prefix, create, password_file, ca, cert and key", name)
	}
}

// notInPrefix reports whether a prefix must not have r: patterns of SCAN and of ACL rules contain it.
func notInPrefix(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(":-_./", r))
}

// together finds the faults of the parts together.
func (p *urlParser) together() {
	switch n := len(p.hosts); {
	case n == 1 || n == 3 || n == 5 || n == 7:
	case n > 7:
		p.faultf("it names %d servers: name 1, 3, 5 or 7", n)
	default:
		p.faultf("it names %d servers: name 1, 3, 5 or 7. An even number survives the loss of no more servers than one "+
			"less does, since a majority of %d is %d", n, n, n/2+1)
	}
	seen := make(map[string]bool)
	for _, h := range p.hosts {
		if seen[h.address] {
			p.faultf("%s is there twice: the servers must be independent of each other", h.address)
		}
		seen[h.address] = true
	}
	if !p.secure && (p.ca != "" || p.cert != "" || p.key != "") {
		p.faultf("ca, cert and key are for TLS: write rediss://")
	}
	if (p.cert == "") != (p.key == "") {
		p.faultf("cert and key belong together: name both")
	}
	if p.passwordFile != "" && p.hosts[0].password != "" {
		p.faultf("it has a password and password_file: name one of them")
	}
}

// namesFile reports whether a parameter of a URL names a file.
func namesFile(name, _ string) bool {
	switch name {
	case "password_file", "ca", "cert", "key":
		return true
	}
	return false
}

// options returns what go-redis needs for each server. It reads the files that the URL names.
func (a *address) options() ([]*redis.Options, error) {
	password := ""
	if a.passwordFile != "" {
		text, err := readFile(a.passwordFile)
		if err != nil {
			return nil, lockkeeper.Invalid("password_file: %v", err)
		}
		if password, _, _ = strings.Cut(string(text), "\n"); strings.TrimSuffix(password, "\r") == "" {
			return nil, lockkeeper.Invalid("password_file: %s has no password in its first line", a.passwordFile)
		}
		password = strings.TrimSuffix(password, "\r")
	}
	config, err := a.tls()
	if err != nil {
		return nil, lockkeeper.Invalid("%v", err)
	}
	var all []*redis.Options
	for _, h := range a.hosts {
		all = append(all, &redis.Options{
			Addr:      h.address,
			Username:  h.user,
			Password:  cmp.Or(h.password, password, os.Getenv(passwordVariable)),
			DB:        h.database,
			TLSConfig: config,
		})
	}
	return all, nil
}

// tls returns the configuration of TLS; nil without TLS.
func (a *address) tls() (*tls.Config, error) {
	if !a.secure {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := readFile(a.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", a.ca)
		}
	}
	if a.cert == "" {
		return config, nil
	}
	cert, err := readFile(a.cert)
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	key, err := readFile(a.key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert %s and key %s: %w", a.cert, a.key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// readFile reads a small file.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New(name + " is too large")
	}
	return text, err
}
