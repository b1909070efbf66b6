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
