package sqllock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testca"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// readable copies a file to a folder where the user of a server can read it.
func readable(t *testing.T, folder, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(folder, filepath.Base(file))
	if err := os.WriteFile(to, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// A MariaDB is spoken to by TLS, and is believed only with a certificate of the
// authority that the URL names.
func TestTLSOfMariaDB(t *testing.T) {
	folder, err := os.MkdirTemp("", "tls")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	authority, stranger := testca.New(t), testca.New(t)
	pair := authority.Server()
	server := testdb.MariaDB(t, testdb.Set("ssl-cert", readable(t, folder, pair.Cert)),
		testdb.Set("ssl-key", readable(t, folder, pair.Key)),
		testdb.Set("ssl-ca", readable(t, folder, authority.File)))
	url := server.Database(t)
	t.Setenv("HOME", t.TempDir())
	encrypted := func(url string) string {
		t.Helper()
		name, cipher := "", ""
		if err := opened(t, url).pool.QueryRow("SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		return cipher
	}
	for _, parameter := range []string{"tls=preferred", "tls=skip-verify", "ca=" + authority.File,
		"tls=true&ca=" + authority.File} {
		if encrypted(with(url, parameter)) == "" {
			t.Errorf("%s: not encrypted", parameter)
		}
	}
	if encrypted(url) == "" {
		t.Error("not encrypted, though the server could")
	}
	if cipher := encrypted(with(url, "tls=false")); cipher != "" {
		t.Errorf("tls=false: encrypted by %s", cipher)
	}
	for _, parameter := range []string{"tls=true", "ca=" + stranger.File} {
		wantError(t, Migrate(t.Context(), with(url, parameter)), lockkeeper.ErrUnavailable, "certificate")
	}
	client := authority.Issue("locker", time.Now().Add(time.Hour))
	opened(t, url).mustExec(t, "CREATE USER locker@'%' REQUIRE X509", "GRANT ALL ON *.* TO locker@'%'")
	wantError(t, Migrate(t.Context(), with(as(t, url, "locker", ""), "ca="+authority.File)), lockkeeper.ErrDenied)
	shown := "ca=" + authority.File + "&cert=" + client.Cert + "&key=" + client.Key
	if err := Migrate(t.Context(), with(as(t, url, "locker", ""), shown)); err != nil {
		t.Error(err)
	}
}
