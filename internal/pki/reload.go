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

// maxPEM bounds a file of certificates, in bytes.
const maxPEM = 1 << 20

// lookTime is the shortest time between two checks of the files for a change.
const lookTime = time.Second

// ServerTLS returns the TLS configuration of a server, for [tls.NewListener] and for HTTP. Each
// handshake uses the present contents of the files. A client need not present a certificate; if it
// does, one of the authorities must have signed it. If clients is nil, the server requests none.
// protocols are those of ALPN, the preferred one first.
//
// Sessions are not resumed: a resumed session would rest on a client certificate that may no longer
// be valid.
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

// A Certificate is a server's certificate chain and key in two PEM files, which it reads again when
// they change. While they can't be read or do not match, as in the middle of a change, the former
// pair stays in use. It is safe for concurrent use.
type Certificate struct{ pair watched[*tls.Certificate] }

// LoadCertificate reads the files. Invalid files are ErrInvalid. log, which may be nil, gets the
// errors of later changes.
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

// Expires returns the expiry of the present certificate.
func (c *Certificate) Expires() time.Time { return c.pair.get().Leaf.NotAfter }

// Authorities are the certificates of the authorities that sign clients' certificates, in a PEM
// file. It is read again when it changes, as the files of a [Certificate] are. They are safe for
// concurrent use.
type Authorities struct{ pool watched[*x509.CertPool] }

// LoadAuthorities reads the file. An invalid file is ErrInvalid. log, which may be nil, gets the
// errors of later changes.
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

// watched is a value loaded from files, and loaded again when they change.
type watched[T any] struct {
	files []string
	load  func() (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // of the files, just before the load of value; nil: load again
	looked time.Time
	wrong  string // the last logged error; "" after a successful load
}

// open loads the value for the first time.
func (w *watched[T]) open(log *slog.Logger, load func() (T, error), files ...string) (err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w.files, w.load, w.log, w.looked = files, load, log, time.Now()
	w.seen = w.states() // before the load, so that refresh finds a change during it
	if w.value, err = w.load(); err != nil {
		return lockkeeper.Invalid("%s", err)
	}
	return nil
}

// get returns the value of the files as they were lookTime ago or later.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.looked) >= lookTime {
		w.looked = now
		w.refresh()
	}
	return w.value
}

// refresh loads the value again if the files have changed. After an error every refresh retries,
// since the files may have been in the middle of a change.
func (w *watched[T]) refresh() {
	seen := w.states()
	if seen != nil && slices.EqualFunc(seen, w.seen, unchanged) {
		return
	}
	value, err := w.load()
	if err != nil {
		w.seen = nil
		if w.wrong != err.Error() {
			w.wrong = err.Error()
			w.log.Error("changed certificates can't be used, so the former ones stay", "error", err, "files", w.files)
		}
		return
	}
	w.value, w.seen, w.wrong = value, seen, ""
	w.log.Info("certificates were read again", "files", w.files)
}

// states returns the present state of the files; nil if one does not exist.
func (w *watched[T]) states() []os.FileInfo {
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
