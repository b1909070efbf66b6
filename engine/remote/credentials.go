package remote

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The environment variables for a token.
const (
	TokenVariable     = "LOCKKEEPER_TOKEN"      // the token itself
	TokenFileVariable = "LOCKKEEPER_TOKEN_FILE" // a file with it, if the former is empty
)

// Bounds of files, in bytes.
const (
	maxToken = 2 << 10
	maxPEM   = 1 << 20
)

// credential returns the token to show: from the URL's file, else from TokenVariable, else from the
// file in TokenFileVariable; "" if there is none.
func (p *endpoint) credential() (string, error) {
	file := p.token
	if file == "" {
		if token := os.Getenv(TokenVariable); token != "" {
			return tidyToken(token, p.origin())
		}
		if file = os.Getenv(TokenFileVariable); file == "" {
			return "", nil
		}
	}
	text, err := readFile(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.origin(), err)
	}
	return tidyToken(string(text), p.origin())
}

// tidyToken returns the token without the end of its line.
func tidyToken(text, from string) (string, error) {
	token := strings.TrimSpace(text)
	if token == "" || len(token) > maxToken ||
		strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s is no token: that is one line of at most %d letters, digits and signs (\"lk token\" "+
			"makes one)", from, maxToken)
	}
	return token, nil
}

// trust returns the TLS configuration for an address: which certificates to accept, and which to show.
func (p *endpoint) trust(address string) (*tls.Config, error) {
	host, _, _ := net.SplitHostPort(address)
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if p.ca != "" {
		text, err := readFile(p.ca, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("?ca=%s: %w", p.ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("?ca=%s has no certificate: it should have those of authorities, in PEM", p.ca)
		}
	}
	if p.cert != "" {
		chain, err := readFile(p.cert, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("?cert=%s: %w", p.cert, err)
		}
		key, err := readFile(p.key, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("?key=%s: %w", p.key, err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("?cert=%s and ?key=%s: %w", p.cert, p.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// readFile reads a whole file, if it is not too large.
func readFile(name string, most int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s has more than %d bytes: it is the wrong file", name, most)
	}
	return text, err
}

// explain adds to an error of TLS what to do about it.
func (p *endpoint) explain(err error, address string) error {
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	header, isHeader := errors.AsType[tls.RecordHeaderError](err)
	named, isNamed := errors.AsType[x509.HostnameError](err)
	network, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case isUnknown:
		return fmt.Errorf("%s shows a certificate that no authority in %s has signed%s: name the file of its authority by "+
			"?ca=FILE (%w)",
			address, cmp.Or(p.ca, "this system's list"), issuer(unknown.Cert), err)
	case isInvalid && invalid.Reason == x509.Expired:
		return fmt.Errorf("%s shows a certificate that is valid from %s to %s, and here it is %s: have the server's "+
			"renewed, or set the clock of this computer (%w)",
			address, day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter), day(time.Now()), err)
	case isNamed:
		return fmt.Errorf("%s shows a certificate for %s, and not for the name in this URL: write one of those names, or "+
			"have a certificate made for this one (%w)",
			address, names(named.Certificate), err)
	case isHeader && string(header.RecordHeader[:]) == string(httpAnswer):
		return fmt.Errorf("%s: %w", address, errHTTP)
	case isHeader && header.Conn != nil:
		return fmt.Errorf("%s does not speak TLS: if that is meant, write lk://%s in place of lks://", address, address)
	case isNetwork && network.Op == "remote error":
		return p.rejected(network.Err, address)
	}
	return err
}

// rejected returns the error for a TLS alert of the server: it refuses the client's certificate, or its
// version of TLS.
func (p *endpoint) rejected(alert error, address string) error {
	if text := alert.Error(); !strings.Contains(text, "certificate") && !strings.Contains(text, "access denied") {
		return fmt.Errorf("%s and this client find no TLS that both speak (%w)", address, alert)
	}
	if p.cert == "" {
		return &lockkeeper.Error{
			Err:    lockkeeper.ErrDenied,
			Cause:  alert,
			Detail: address + " wants a certificate of this client: name its files by ?cert=FILE&key=FILE",
		}
	}
	return &lockkeeper.Error{
		Err: lockkeeper.ErrDenied, Cause: alert,
		Detail: address + " does not accept the certificate in " + p.cert +
			": it has expired, or is signed by an authority that the server does not trust",
	}
}

// nobodyAdmitted begins the denial of a server that admits nobody, whatever a client shows.
const nobodyAdmitted = "nobody is admitted: "

// advise adds to a server's refusal what the user of this client can do about it.
func (p *endpoint) advise(e *lockkeeper.Error, address, token string) error {
	if e.Err != lockkeeper.ErrDenied || e.Reason != lockkeeper.NoReason || e.Cause != nil ||
		strings.HasPrefix(e.Detail, nobodyAdmitted) {
		return e
	}
	advised := *e
	switch {
	case token != "":
		advised.Detail += fmt.Sprintf("; %s was shown the token of %s: ask the operator of that server for a valid one",
			address, p.origin())
	case p.cert != "":
		advised.Detail += fmt.Sprintf("; %s was shown the certificate in %s, and no token", address, p.cert)
	default:
		advised.Detail += fmt.Sprintf("; %s was shown neither a token nor a certificate: put a token into %s, or name its "+
			"file by ?token=FILE or %s", address, TokenVariable, TokenFileVariable)
	}
	return &advised
}

// origin names where the token comes from.
func (p *endpoint) origin() string {
	switch {
	case p.token != "":
		return "?token=" + p.token
	case os.Getenv(TokenVariable) != "":
		return TokenVariable
	}
	return TokenFileVariable + "=" + os.Getenv(TokenFileVariable)
}

// issuer names the issuer of a certificate.
func issuer(c *x509.Certificate) string {
	if c == nil || c.Issuer.String() == "" {
		return ""
	}
	return fmt.Sprintf(" (it is signed by %q)", c.Issuer.String())
}

// names returns the names that a certificate is for.
func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name at all"
	}
	return strings.Join(all, ", ")
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
