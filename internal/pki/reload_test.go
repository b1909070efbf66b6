package pki

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// A changed certificate is in use within a second. While only one of its two files has changed, the
// former pair stays, and the log says why, once.
func TestCertificateIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t)
		pair := ca.Issue("locks.example.org", time.Now().Add(time.Hour))
		var log bytes.Buffer
		c, err := LoadCertificate(pair.Cert, pair.Key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		first := c.Expires()
		other := ca.Issue("locks.example.org", time.Now().Add(2*time.Hour))
		if err := os.Rename(other.Cert, pair.Cert); err != nil { // but not yet its key
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(lookTime)
			if !c.Expires().Equal(first) {
				t.Fatal("a certificate without its key is in use")
			}
		}
		if n := strings.Count(log.String(), "can't be used"); n != 1 || !strings.Contains(log.String(), pair.Key) {
			t.Errorf("the log says so %d times: %s", n, &log)
		}
		if err := os.Rename(other.Key, pair.Key); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(lookTime - 1); !c.Expires().Equal(first) {
			t.Error("the files are looked at more than once in a second")
		}
		if time.Sleep(1 * time.Nanosecond); c.Expires().Equal(first) {
			t.Errorf("the new pair is not in use: %s", &log)
		}
		os.Remove(pair.Cert)
		time.Sleep(lookTime)
		if !ServerTLS(c, nil).SessionTicketsDisabled {
			t.Error("a session can be resumed without the certificate of today")
		}
		if got, err := ServerTLS(c, nil).GetCertificate(nil); err != nil || got.Leaf.DNSNames[0] != "locks.example.org" {
			t.Errorf("without the file: %v %v", got, err)
		}
	})
}

// A half-written file is loaded again when it is complete.
func TestHalfWrittenAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := testca.New(t), testca.New(t)
		file := filepath.Join(t.TempDir(), "clients.pem")
		text, err := os.ReadFile(one.File)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text []byte) {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookTime)
		}
		write(text)
		a, err := LoadAuthorities(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := a.pool.get()
		write(nil)
		write(text[:len(text)/2])
		if !a.pool.get().Equal(first) {
			t.Error("half a file is in use")
		}
		more, err := os.ReadFile(two.File)
		if err != nil {
			t.Fatal(err)
		}
		write(append(text, more...))
		config, err := ServerTLS(nil, a).GetConfigForClient(nil)
		if err != nil || config.ClientCAs.Equal(first) || config.ClientAuth != tls.VerifyClientCertIfGiven {
			t.Errorf("the second authority is not in use: %v", err)
		}
	})
}

// A failed load is tried again even if the files have not changed: there may have been too many
// open files.
func TestReadingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookTime)
		}
		write("1")
		var w watched[int]
		var fails error
		reads := 0
		if err := w.open(nil, func() (int, error) { reads++; return reads, fails }, file); err != nil {
			t.Fatal(err)
		}
		fails = errors.New("too many open files")
		if write("22"); w.get() != 1 {
			t.Error("a failure is taken for an answer")
		}
		fails = nil
		if time.Sleep(lookTime); w.get() != 3 {
			t.Errorf("%d of %d reads counts", w.get(), reads)
		}
		if time.Sleep(lookTime); w.get() != 3 || reads != 3 {
			t.Errorf("it was read %d times", reads)
		}
	})
}

func TestUselessCertificates(t *testing.T) {
	ca := testca.New(t)
	pair, other := ca.Server(), ca.Server()
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxPEM+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ cert, key, says string }{
		"no file":       {"/nowhere/cert.pem", pair.Key, "/nowhere/cert.pem"},
		"another's key": {pair.Cert, other.Key, "private key does not match"},
		"large":         {large, pair.Key, "no file of certificates"},
	} {
		_, err := LoadCertificate(c.cert, c.key, nil)
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadAuthorities(pair.Key, nil); !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("no authorities: %v", err)
	}
}
