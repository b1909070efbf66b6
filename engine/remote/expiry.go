package remote

import (
	"context"
	"crypto/tls"
	"time"
)

// Expiry returns when the certificates of the server and of this client expire; the zero time for one
// that is not used. It connects if necessary: ErrUnavailable if no server answers, ErrDenied if it
// refuses the client.
func (e *Engine) Expiry(ctx context.Context) (server, own time.Time, err error) {
	c, err := e.connection(ctx)
	if err != nil {
		return server, own, err
	}
	if secure, ok := c.net.(*tls.Conn); ok {
		server = secure.ConnectionState().PeerCertificates[0].NotAfter
	}
	if e.endpoint.cert == "" {
		return server, own, nil
	}
	config, err := e.endpoint.trust(e.endpoint.addresses[0])
	if err == nil {
		own = config.Certificates[0].Leaf.NotAfter
	}
	return server, own, err
}
