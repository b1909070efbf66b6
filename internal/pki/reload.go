package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// maxPEM is how large a file of certificates may be, in bytes.
const maxPEM = 1 << 20

// lookTime is how often at most files are looked at for a change.
const lookTime = time.Second

// ServerTLS is how a server speaks TLS with this certificate, for [tls.NewListener] and
// for HTTP alike. Both are used as their files are at each handshake. A client's
// certificate is verified if it shows one, and must be of one of the authorities;
// with nil none is asked for. Protocols are those of ALPN, the best first.
//
// No session is resumed: a resumed one would be believed by a certificate that may
// not be good any more.
func ServerTLS(c *Certificate, clients *Authorities, protocols ...string) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.get(), nil },
	}
	if clients == nil {
		return base
	}
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		inner := base.Clone()
		inner.ClientAuth, inner.ClientCAs = tls.VerifyClientCertIfGiven, clients.pool.get()
		return inner, nil
	}
	return outer
}

// A Certificate is a server's certificate chain and key, in two PEM files that are
// read again when they change. While they can't be read or do not belong together,
// as in the middle of a change, the former pair stays in use. It is safe for
// concurrent use.
type Certificate struct{ pair watched[*tls.Certificate] }

// LoadCertificate reads the files. ErrInvalid says what is wrong with them. A later
// change that is of no use is told to the log, which may be nil.
func LoadCertificate(certificate, key string, log *slog.Logger) (*Certificate, error) {
	c := new(Certificate)
	return c, c.pair.open(log, func() (*tls.Certificate, error) {
		chain, err := readPEM(certificate)
		if err != nil {
			return nil, err
		}
		secret, err := readPEM(key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(chain, secret)
		if err != nil {
			return nil, fmt.Errorf("certificate %s and key %s: %w", certificate, key, err)
		}
		return &pair, nil
	}, certificate, key)
}

// Expires is when the certificate that is in use now ends.
func (c *Certificate) Expires() time.Time { return c.pair.get().Leaf.NotAfter }

// Authorities are the certificates that clients' certificates must be signed by, in
// a PEM file that is read again when it changes, as of a [Certificate]. They are
// safe for concurrent use.
type Authorities struct{ pool watched[*x509.CertPool] }

// LoadAuthorities reads the file. ErrInvalid says what is wrong with it. A later
// change that is of no use is told to the log, which may be nil.
func LoadAuthorities(file string, log *slog.Logger) (*Authorities, error) {
	a := new(Authorities)
	return a, a.pool.open(log, func() (*x509.CertPool, error) {
		text, err := readPEM(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate: it should have those of authorities, in PEM", file)
		}
		return pool, nil
	}, file)
}

// readPEM reads a whole file, if it is not too large.
func readPEM(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = fmt.Errorf("%s has more than %d bytes: that is no file of certificates", name, maxPEM)
	}
	return text, err
}

// watched is what was made of some files, and is made again when they change.
type watched[T any] struct {
	files []string
	load  func() (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // how the files were when value was made of them; nil: look again
	looked time.Time
	wrong  string // what was logged last; "" if all is well
}

// open makes the value for the first time.
func (w *watched[T]) open(log *slog.Logger, load func() (T, error), files ...string) (err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w.files, w.load, w.log, w.looked = files, load, log, time.Now()
	w.seen = w.look() // before they are read: what changes while they are is seen next time
	if w.value, err = w.load(); err != nil {
		return lockkeeper.Invalid("%s", err)
	}
	return nil
}

// get is the value, of files as they were a second ago or later.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.looked) >= lookTime {
		w.looked = now
		w.refresh()
	}
	return w.value
}

// refresh makes the value anew if the files have changed. What is of no use is
// tried again at each look, since it may be half of a change.
func (w *watched[T]) refresh() {
	seen := w.look()
	if seen != nil && slices.EqualFunc(seen, w.seen, unchanged) {
		return
	}
	value, err := w.load()
	if err != nil {
		w.seen = nil
		if w.wrong != err.Error() {
			w.wrong = err.Error()
			w.log.Error("changed certificates are of no use, so the former ones stay", "error", err, "files", w.files)
		}
		return
	}
	w.value, w.seen, w.wrong = value, seen, ""
	w.log.Info("certificates were read again", "files", w.files)
}

// look is how the files are now; nil if one is not there.
func (w *watched[T]) look() []os.FileInfo {
	seen := make([]os.FileInfo, len(w.files))
	for i, name := range w.files {
		var err error
		if seen[i], err = os.Stat(name); err != nil {
			return nil
		}
	}
	return seen
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
