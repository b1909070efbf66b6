package access

import (
	"crypto/x509"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// NodeScheme is the scheme of the URI in the certificate of a node of a cluster. Such certificates are
// for the other nodes only.
const NodeScheme = "lockkeeper"

// CertificateName returns the identity of a certificate: the last element of the path of its first
// URI (as in SPIFFE), or without a URI its first DNS name, or else its common name. If that is no
// valid name of an identity, the error is an ErrInvalid. It never tries the next field then, so a
// certificate has only one possible identity. The certificate of a node of a cluster names none.
func CertificateName(c *x509.Certificate) (string, error) {
	name, what := c.Subject.CommonName, "common name"
	for _, uri := range c.URIs {
		if uri.Scheme == NodeScheme {
			return "", lockkeeper.Invalid("the certificate is that of a node of a cluster, which is for other nodes only: " +
				"a client needs one of its own")
		}
	}
	switch {
	case len(c.URIs) > 0:
		what = "URI"
		path := strings.TrimRight(c.URIs[0].Path, "/")
		name = path[strings.LastIndexByte(path, '/')+1:]
	case len(c.DNSNames) > 0:
		name, what = c.DNSNames[0], "DNS name"
	}
	if err := IdentityName(name); err != nil {
		return "", lockkeeper.Invalid("the %s of the certificate names no identity: %s", what, err.(*lockkeeper.Error).Detail)
	}
	return name, nil
}
