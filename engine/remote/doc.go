// Package remote is the engine of another computer, reached through its server:
// lk://host:7420, or lks://host:7420 by TLS.
//
// All claims of an Engine share one connection, which is opened when it is needed.
// When it breaks, calls that are out end with ErrUnavailable, sessions are told to
// renew, and the next call opens another one. Nothing else is lost: sessions live
// at the server by their leases.
//
// A client shows a token or a certificate, if it has one, and believes a server whose
// certificate is good. Their files are read at each connection, so that they can be
// replaced at any time. Who is refused gets ErrDenied: that is an answer, and not the
// want of one, so it is not tried for ever.
package remote
