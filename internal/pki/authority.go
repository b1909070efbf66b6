package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// Lifetimes of the certificates of a small authority.
const (
	authorityLife   = 10 * 365 * duration.Day
	certificateLife = 365 * duration.Day
	backdated       = time.Hour // for clients whose clocks are behind
)

// An Authority is a small CA in a directory: ca.pem and ca-key.pem, and beside them the certificates
// that it signed, as NAME.pem and NAME-key.pem. Keys are readable by their owner alone. It is not
// safe for concurrent use.
type Authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	made   bool // created by OpenAuthority
}

// OpenAuthority reads the authority in a directory, or creates one there. An expired authority is
// an error.
func OpenAuthority(folder string, now time.Time) (*Authority, error) {
	au := &Authority{folder: folder}
	if _, err := os.Stat(au.File("ca-key")); errors.Is(err, fs.ErrNotExist) {
		return au, au.create(now)
	}
	return ReadAuthority(folder, now)
}

// ReadAuthority reads the authority in a directory. A missing or expired one is an error.
func ReadAuthority(folder string, now time.Time) (*Authority, error) {
	au := &Authority{folder: folder}
	key, err := os.ReadFile(au.File("ca-key"))
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(au.File("ca"))
	if err != nil {
		return nil, err
	}
	if err := au.parse(cert, key); err != nil {
		return nil, err
	}
	if now.After(au.cert.NotAfter) {
		return nil, fmt.Errorf("the authority in %s has expired: move it away to create another", folder)
	}
	return au, nil
}

// Created reports whether OpenAuthority created the authority.
func (au *Authority) Created() bool { return au.made }

// File returns the path of the certificate of that name; that of a key is NAME-key.
func (au *Authority) File(name string) string { return filepath.Join(au.folder, name+".pem") }

// parse reads the authority's own certificate and key.
func (au *Authority) parse(cert, key []byte) error {
	certBlock, _ := pem.Decode(cert)
	if keyBlock, _ := pem.Decode(key); certBlock == nil || keyBlock == nil {
		return fmt.Errorf("%s and %s are not both PEM files: move them away to create others", au.File("ca"),
			au.File("ca-key"))
	}
	var err error
	if au.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return fmt.Errorf("%s: %w", au.File("ca"), err)
	}
	if au.key, err = parseKey(key); err != nil {
		return fmt.Errorf("%s: %w", au.File("ca-key"), err)
	}
	if !au.key.PublicKey.Equal(au.cert.PublicKey) {
		return fmt.Errorf("%s is not the key of %s: move both away to create others", au.File("ca-key"), au.File("ca"))
	}
	return nil
}

// create makes the authority's key and certificate.
func (au *Authority) create(now time.Time) error {
	if err := os.MkdirAll(au.folder, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Lockkeeper CA of " + host},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	au.cert, au.key, au.made = template, key, true
	return au.issue("ca", template, key)
}

// IssueServer signs a certificate for a server that clients reach under these names and IP
// addresses.
func (au *Authority) IssueServer(hosts []string, now time.Time) error {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: hosts[0]},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return au.sign("server", template)
}

// ServerHosts returns the names and IP addresses of the server's present certificate; none without
// one.
func (au *Authority) ServerHosts() []string {
	text, err := os.ReadFile(au.File("server"))
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// IssueClient signs a certificate that tells a server the identity of a client.
func (au *Authority) IssueClient(name string, now time.Time) error {
	return au.sign(name, &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// sign makes a key and a certificate for it.
func (au *Authority) sign(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return au.issue(name, template, key)
}

// issue signs the template for a key and writes both files, each by renaming, and the key first. A
// server that reads the pair between the two sees a key that does not match, and keeps the pair
// that it has.
func (au *Authority) issue(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	signed, err := au.Sign(template, key.Public())
	if err != nil {
		return err
	}
	if err := writeKey(au.File(name+"-key"), key); err != nil {
		return err
	}
	if au.made && name == "ca" {
		if au.cert, err = x509.ParseCertificate(signed); err != nil {
			return err
		}
	}
	return replaceFile(au.File(name), pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: signed}), 0o644)
}

// Sign returns a certificate for a public key, in DER, and writes no file. The template has its names,
// usages and lifetime; Sign sets the serial number.
func (au *Authority) Sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, template, au.cert, public, au.key)
}
