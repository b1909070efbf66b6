package main

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

// How long the certificates of a small authority live. An authority that is for
// more than a first try is somebody else's program.
const (
	authorityLife   = 10 * 365 * duration.Day
	certificateLife = 365 * duration.Day
	backdated       = time.Hour // for those whose clocks are behind
)

// An authority is a small CA in a directory: ca.pem and ca-key.pem, and beside them
// what it has signed, as NAME.pem and NAME-key.pem.
type authority struct {
	folder string
	cert   *x509.Certificate
	key    crypto.Signer
	made   bool // just now
}

// openAuthority reads the authority in a directory, or makes one there.
func openAuthority(folder string, now time.Time) (*authority, error) {
	au := &authority{folder: folder}
	pair, err := os.ReadFile(au.file("ca-key"))
	if errors.Is(err, fs.ErrNotExist) {
		return au, au.create(now)
	}
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(au.file("ca"))
	if err != nil {
		return nil, err
	}
	return au, au.parse(cert, pair)
}

func (au *authority) file(name string) string { return filepath.Join(au.folder, name+".pem") }

// parse takes the authority's own certificate and key.
func (au *authority) parse(cert, key []byte) error {
	certBlock, _ := pem.Decode(cert)
	keyBlock, _ := pem.Decode(key)
	if certBlock == nil || keyBlock == nil {
		return fmt.Errorf("%s and %s are not both PEM files: move them away to begin anew", au.file("ca"), au.file("ca-key"))
	}
	var err error
	if au.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return fmt.Errorf("%s: %w", au.file("ca"), err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", au.file("ca-key"), err)
	}
	signer, ok := parsed.(crypto.Signer)
	if public, same := au.cert.PublicKey.(*ecdsa.PublicKey); !ok || !same || !public.Equal(signer.Public()) {
		return fmt.Errorf("%s is not the key of %s: move both away to begin anew", au.file("ca-key"), au.file("ca"))
	}
	au.key = signer
	return nil
}

// create makes the authority's key and certificate.
func (au *authority) create(now time.Time) error {
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

// server signs a certificate for a server that is reached under these names and
// IP addresses.
func (au *authority) server(hosts []string, now time.Time) error {
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

// serverHosts are the names and IP addresses of the server's certificate that is there;
// none if there is none.
func (au *authority) serverHosts() []string {
	text, err := os.ReadFile(au.file("server"))
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

// client signs a certificate by which a server knows an identity.
func (au *authority) client(name string, now time.Time) error {
	return au.sign(name, &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// sign makes a key and a certificate for it.
func (au *authority) sign(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return au.issue(name, template, key)
}

// issue signs the template for a key and writes both. The key comes first and by
// renaming, so that a server that reads the pair meanwhile sees a pair that does not
// fit, and keeps the one that it has.
func (au *authority) issue(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return err
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, au.cert, key.Public(), au.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := replaceFile(au.file(name+"-key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		0o600); err != nil {
		return err
	}
	if au.made && name == "ca" {
		if au.cert, err = x509.ParseCertificate(signed); err != nil {
			return err
		}
	}
	return replaceFile(au.file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644)
}

// replaceFile puts text in the place of a file, whole or not at all.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // of no effect once it is renamed
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
