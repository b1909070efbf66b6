// Package pki makes and loads the files by which a server and its clients know each other:
// certificates, and digests of tokens.
//
// An [Authority] is a small CA in a directory. It signs a certificate for the server and one for each
// client. A [Certificate] and [Authorities] are the loading side: a server reads the files again when
// they change, and keeps the former ones while the changed ones can't be used. Token files are
// changed under a lock of their directory, and replaced whole. [ImportAuthority] copies an authority to
// another machine, for engines whose nodes all sign.
package pki
