package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Types of PEM blocks.
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// Certificate returns the authority's own certificate. It must not be changed.
func (au *Authority) Certificate() *x509.Certificate { return au.cert }

// Export returns the authority's certificate and key in PEM, for ImportAuthority on another machine.
// Its caller must keep the key secret.
func (au *Authority) Export() (certificate, key []byte, err error) {
	secret, err := x509.MarshalPKCS8PrivateKey(au.key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: au.cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: secret}), nil
}

// ImportAuthority writes an authority that Export returned into a directory, over the one that may be
// there, and returns it. When it returns nil, the files are on disk. It writes nothing if the
// certificate is no authority's, has expired, or is not that of the key.
func ImportAuthority(folder string, certificate, key []byte, now time.Time) (*Authority, error) {
	au := &Authority{folder: folder}
	if err := au.parse(certificate, key); err != nil {
		return nil, err
	}
	if !au.cert.IsCA || now.After(au.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate of %s is not that of an authority, or has expired", au.cert.Subject)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	certificate, key, err := au.Export() // without what else the texts may have
	if err == nil {
		err = replaceFile(au.File("ca-key"), key, 0o600)
	}
	if err == nil {
		err = replaceFile(au.File("ca"), certificate, 0o644)
	}
	return au, err
}

// OpenKey reads a private key from a PEM file, or creates one there that only its owner can read.
// When it returns nil, the key is on disk.
func OpenKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ReadKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	return key, writeKey(file, key)
}

// ReadKey reads a private key that OpenKey created.
func ReadKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// writeKey replaces a file by a key in PEM.
func writeKey(file string, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return replaceFile(file, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: secret}), 0o600)
}

// parseKey reads the PEM of an ECDSA key, the only kind that this package creates.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("this is no PEM file")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T: an ECDSA key is needed", parsed)
	}
	return key, nil
}

// WriteFile replaces a file by text, atomically. When it returns nil, the file is on disk.
func WriteFile(file string, text []byte, mode os.FileMode) error {
	return replaceFile(file, text, mode)
}
