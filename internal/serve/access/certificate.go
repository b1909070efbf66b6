package access

import (
	"crypto/x509"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// CertificateName is the identity that a certificate is for: the last element of the
// path of its first URI (as SPIFFE has it), or without one its first DNS name, or
// else its common name. It refuses with ErrInvalid a certificate in which that is no
// name of an identity; it does not look for another one then, so that nobody gets
// a second choice.
func CertificateName(c *x509.Certificate) (string, error) {
	name, what := c.Subject.CommonName, "common name"
	switch {
	case len(c.URIs) > 0:
		what = "URI"
		path := strings.TrimRight(c.URIs[0].Path, "/")
		name = path[strings.LastIndexByte(path, '/')+1:]
	case len(c.DNSNames) > 0:
		name, what = c.DNSNames[0], "DNS name"
	}
	if err := IdentityName(name); err != nil {
		return "", lockkeeper.Invalid("the %s of the certificate names nobody: %s", what, err.(*lockkeeper.Error).Detail)
	}
	return name, nil
}
