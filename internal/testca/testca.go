// Package testca makes certificates for tests: of an authority, and what it signs,
// as files in a temporary folder.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	File string // its certificate, in PEM

	// Usages is what the next certificates are good for; nil is servers and clients.
	Usages []x509.ExtKeyUsage

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Pair is a certificate and its key in two PEM files.
type Pair struct{ Cert, Key string }

// New makes an authority for the time of the test.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(24 * time.Hour),
	}
	template.NotBefore = time.Now().Add(-24 * time.Hour)
	a.key = a.newKey()
	der := a.sign(template, template, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write(a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for a name, or for an address, that is good until then.
func (a *Authority) Issue(name string, until time.Time) Pair {
	a.t.Helper()
	dir := a.t.TempDir()
	p := Pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	a.Replace(p, name, until)
	return p
}

// Server makes the certificate of a server at 127.0.0.1, good for an hour.
func (a *Authority) Server() Pair { return a.Issue("127.0.0.1", time.Now().Add(time.Hour)) }

// Replace makes a new certificate and key in the files of p, each in one step.
func (a *Authority) Replace(p Pair, name string, until time.Time) {
	a.t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-12 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: a.Usages,
	}
	if a.Usages == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	key := a.newKey()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(p.Cert, "CERTIFICATE", a.sign(template, a.cert, &key.PublicKey))
	a.write(p.Key, "PRIVATE KEY", private)
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) []byte {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) {
	err := os.WriteFile(name+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}
