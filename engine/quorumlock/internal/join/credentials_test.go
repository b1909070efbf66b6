package join

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

func removeFile(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func keyIn(t *testing.T, folder string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := pki.ReadKey(filepath.Join(folder, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// founded returns the credentials of the first node of a new cluster, and its folder.
func founded(t *testing.T) (*Credentials, string) {
	t.Helper()
	folder := t.TempDir()
	identity, err := Found(folder, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenCredentials(folder, identity)
	if err != nil {
		t.Fatal(err)
	}
	return c, folder
}

// valid returns the leaf of the present certificate after other nodes would have verified it.
func valid(t *testing.T, c *Credentials) *x509.Certificate {
	t.Helper()
	pair, roots, err := c.Present()
	if err != nil {
		t.Fatal(err)
	}
	for _, usage := range usages {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: time.Now(),
		})
		if err != nil {
			t.Error(err)
		}
	}
	return pair.Leaf
}

func TestCertificateNamesItsNode(t *testing.T) {
	c, folder := founded(t)
	leaf := valid(t, c)
	p, err := ParsePeer(leaf)
	id := c.Identity()
	if err != nil || p != (Peer{id.Cluster, id.ID, "alpha", c.Key()}) {
		t.Errorf("%+v, %v; want %+v", p, err, id)
	}
	if got, want := leaf.URIs[0].String(), "lockkeeper://"+id.Cluster+"/node/"+FormatID(id.ID)+"/alpha"; got != want {
		t.Errorf("its URI is %s, want %s", got, want)
	}
	again, err := OpenCredentials(folder, id)
	if err != nil || again.Key() != c.Key() || again.Authority() != c.Authority() {
		t.Errorf("after a restart the keys are others: %v", err)
	}
	for _, name := range []string{"ca-key.pem", keyFile} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
		}
	}
}

// The certificate is renewed a third of its lifetime before its end, and when the wall clock is set
// back to before its beginning.
func TestCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := founded(t)
		first := valid(t, c)
		if got := time.Until(first.NotAfter).Round(time.Minute); got != 90*duration.Day {
			t.Errorf("a new certificate is valid for %s", got)
		}
		time.Sleep(60*duration.Day - time.Minute)
		if valid(t, c).SerialNumber.Cmp(first.SerialNumber) != 0 {
			t.Error("it was renewed early")
		}
		time.Sleep(2 * time.Minute)
		second := valid(t, c)
		if second.SerialNumber.Cmp(first.SerialNumber) == 0 {
			t.Error("it was not renewed")
		}
		c.pair.Leaf.NotBefore = time.Now().Add(time.Hour) // as after a clock that was ahead
		if valid(t, c).SerialNumber.Cmp(second.SerialNumber) == 0 {
			t.Error("it was not renewed after the clock was set back")
		}
		time.Sleep(300 * duration.Day) // the process stood still
		valid(t, c)
	})
}

// A node whose CA was replaced in its folder presents a certificate of the new one.
func TestReplacedAuthoritySignsAtTheNextStart(t *testing.T) {
	c, folder := founded(t)
	_, other := founded(t)
	copyFile(t, other, folder, "ca.pem")
	if _, err := OpenCredentials(folder, c.Identity()); err == nil {
		t.Error("a CA with the key of another was accepted")
	}
	copyFile(t, other, folder, "ca-key.pem")
	after, err := OpenCredentials(folder, c.Identity())
	if err != nil {
		t.Fatal(err)
	}
	valid(t, after)
	if after.Key() != c.Key() || after.Authority() == c.Authority() {
		t.Error("want the same key of the node, and another CA")
	}
}

func TestMissingKeysAreNotReplaced(t *testing.T) {
	for name, remedy := range map[string]string{
		"ca.pem":     "every other node has a copy",
		"ca-key.pem": "every other node has a copy",
		keyFile:      "lk cluster remove",
	} {
		c, folder := founded(t)
		removeFile(t, folder, name)
		_, err := OpenCredentials(folder, c.Identity())
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// A client's and a server's certificate are none of a node, even if the same CA signed them.
func TestClientsAreNoPeers(t *testing.T) {
	_, folder := founded(t)
	au, err := pki.OpenAuthority(folder, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := au.IssueClient("alpha", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := au.IssueServer([]string{"alpha"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alpha", "server"} {
		pair, err := tls.LoadX509KeyPair(au.File(name), au.File(name+"-key"))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := ParsePeer(pair.Leaf); err == nil {
			t.Errorf("the certificate of %s is one of the node %+v", name, p)
		}
	}
	if p, err := ParsePeer(au.Certificate()); err == nil {
		t.Errorf("the CA is the node %+v", p)
	}
}

// The certificate of a node is none of a client, even if a server's operator trusts the same CA.
func TestPeersAreNoClients(t *testing.T) {
	c, _ := founded(t)
	if name, err := access.CertificateName(valid(t, c)); err == nil {
		t.Errorf("it is the identity %q", name)
	}
}

func TestOtherFormsOfCertificatesAreRefused(t *testing.T) {
	c, _ := founded(t)
	good := *valid(t, c)
	uri := good.URIs[0].String()
	if _, err := ParsePeer(&good); err != nil {
		t.Fatal(err)
	}
	for about, change := range map[string]func(cert *x509.Certificate){
		"no URI":         func(cert *x509.Certificate) { cert.URIs = nil },
		"two URIs":       func(cert *x509.Certificate) { cert.URIs = append(cert.URIs, cert.URIs[0]) },
		"a DNS name too": func(cert *x509.Certificate) { cert.DNSNames = []string{"alpha"} },
		"an address too": func(cert *x509.Certificate) { cert.IPAddresses = []net.IP{{127, 0, 0, 1}} },
		"clients only":   func(cert *x509.Certificate) { cert.ExtKeyUsage = usages[1:] },
		"any usage":      func(cert *x509.Certificate) { cert.ExtKeyUsage = nil },
		"a CA":           func(cert *x509.Certificate) { cert.IsCA = true },
	} {
		cert := good
		change(&cert)
		if p, err := ParsePeer(&cert); err == nil {
			t.Errorf("%s: %+v", about, p)
		}
	}
	for _, wrong := range []string{
		strings.Replace(uri, "lockkeeper:", "spiffe:", 1), uri + "/", uri + "?x", uri + "#x", uri + "%2fx",
		strings.TrimSuffix(uri, "/alpha"), strings.Replace(uri, "/node/", "/client/", 1),
		strings.Replace(uri, "//", "//user@", 1), strings.Replace(uri, "/node/", ":1/node/", 1),
		"lockkeeper://" + c.identity.Cluster + "/node/0000000000000000/alpha",
		"lockkeeper://" + c.identity.Cluster + "/node/1/alpha", "lockkeeper:///node/0000000000000001/alpha",
		"lockkeeper:x", strings.Replace(uri, "alpha", "Alpha", 1), strings.Replace(uri, "alpha", strings.Repeat("a", 64), 1),
	} {
		cert := good
		var err error
		if cert.URIs[0], err = url.Parse(wrong); err != nil {
			t.Fatal(err)
		}
		if p, err := ParsePeer(&cert); err == nil {
			t.Errorf("%s: %+v", wrong, p)
		}
		cert.URIs[0], _ = url.Parse(uri)
	}
}

// What the settings say decides over what certificates say.
func TestExpelledAndForgedPeersAreNotAllowed(t *testing.T) {
	c := newCluster(t)
	second, err := c.join(c.joiner("second", c.token()))
	if err != nil {
		t.Fatal(err)
	}
	check := func(p Peer) error {
		v, _ := c.Read(t.Context())
		return Allowed(v, p)
	}
	id := second.Identity()
	p := Peer{id.Cluster, id.ID, id.Name, second.Key()}
	if err := check(p); err != nil {
		t.Error(err)
	}
	forged := p
	forged.Key[0]++
	if check(forged) == nil {
		t.Error("another key of the same id is allowed")
	}
	forged = p
	forged.Name = "third"
	if check(forged) == nil {
		t.Error("another name of the same id is allowed")
	}
	unknown := p
	unknown.ID, unknown.Name = 77, "third"
	if err := check(unknown); err != nil {
		t.Errorf("a node that is not known yet: %v", err)
	}
	if err := Expel(t.Context(), c, id.ID, "stolen"); err != nil {
		t.Fatal(err)
	}
	if check(p) == nil {
		t.Error("an expelled node is allowed")
	}
}
