package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An authority that was made before signs again, and a server's certificate keeps its hosts.
func TestAuthoritySignsAgain(t *testing.T) {
	folder, now := filepath.Join(t.TempDir(), "ca"), time.Now()
	for i := range 2 {
		au, err := OpenAuthority(folder, now)
		if err != nil || au.Created() != (i == 0) {
			t.Fatalf("time %d: created %v, %v", i+1, au.Created(), err)
		}
		if err := errors.Join(au.IssueServer([]string{"locks.example.com", "::1"}, now),
			au.IssueClient("ci", now)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(au.ServerHosts(), " "); got != "locks.example.com ::1" {
			t.Errorf("the server's certificate is for %q", got)
		}
		roots := x509.NewCertPool()
		text, err := os.ReadFile(au.File("ca"))
		if err != nil || !roots.AppendCertsFromPEM(text) {
			t.Fatalf("no authority in %s: %v", au.File("ca"), err)
		}
		for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth,
			"ci": x509.ExtKeyUsageClientAuth} {
			pair, err := tls.LoadX509KeyPair(au.File(name), au.File(name+"-key"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if info, err := os.Stat(au.File(name + "-key")); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("the key of %s has mode %v, %v", name, info.Mode(), err)
			}
		}
	}
}

// An authority that can't sign is refused, and nothing is overwritten.
func TestUselessAuthorityIsRefused(t *testing.T) {
	now := time.Now()
	folder, other := t.TempDir(), t.TempDir()
	for _, f := range []string{folder, other} {
		if _, err := OpenAuthority(f, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenAuthority(folder, now.Add(authorityLife+time.Hour)); err == nil ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired authority: %v", err)
	}
	if err := os.Rename(filepath.Join(other, "ca-key.pem"), filepath.Join(folder, "ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(folder, now); err == nil || !strings.Contains(err.Error(), "is not the key of") {
		t.Errorf("another's key: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "ca-key.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(folder, now); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("no key: %v", err)
	}
}

// An authority that was copied to another directory signs there.
func TestImportedAuthoritySigns(t *testing.T) {
	now := time.Now()
	au, err := OpenAuthority(t.TempDir(), now)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := au.Export()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "copy")
	if _, err := ReadAuthority(folder, now); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an authority that is not there: %v", err)
	}
	other, err := OpenAuthority(t.TempDir(), now)
	if err != nil {
		t.Fatal(err)
	}
	if _, otherKey, err := other.Export(); err != nil {
		t.Error(err)
	} else if _, err := ImportAuthority(folder, cert, otherKey, now); err == nil {
		t.Error("the key of another was imported")
	}
	if _, err := ImportAuthority(folder, cert, key, now.Add(authorityLife+time.Hour)); err == nil {
		t.Error("an expired authority was imported")
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("a refused authority left files")
	}
	for range 2 { // the second one over the first
		if _, err := ImportAuthority(folder, cert, key, now); err != nil {
			t.Fatal(err)
		}
	}
	imported, err := ReadAuthority(folder, now)
	if err != nil || !imported.Certificate().Equal(au.Certificate()) {
		t.Errorf("the copy differs: %v", err)
	}
	if info, err := os.Stat(imported.File("ca-key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copied key: %v, %v", info.Mode(), err)
	}
}

func TestKeyStaysTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "folder", "key.pem")
	first, err := OpenKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := OpenKey(file); err != nil || !second.Equal(first) {
		t.Errorf("opened again: %v", err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKey(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged key: %v", err)
	}
}
