package sqllock

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func TestCheck(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, url := range []string{
		"postgres://", "postgres:///locks", "postgres://u:p@a:5432,b:5433/locks?target_session_attrs=read-write",
		"postgresql://u@h/locks?schema=my_locks&migrate=off&pool=4&sslmode=disable", "postgres://h/db?statement_timeout=1000",
		"mysql://h/locks", "mysql://u:p%40q@h:3307/locks?prefix=my_&migrate=on", "mariadb://[::1]:3306/locks?tls=skip-verify",
		"mysql:///locks?socket=/run/mysqld/mysqld.sock",
	} {
		if err := Check(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, word := range map[string]string{
		"postgres:locks":                                      "postgres://HOST/DATABASE",
		"oracle://h/d":                                        "mysql://HOST/DATABASE",
		"postgres://h/d?schema=Locks":                         "lower-case",
		"postgres://h/d?schema=pg_locks":                      "one of the system's",
		"postgres://h/d?schema=" + strings.Repeat("a", 64):    "63",
		"postgres://h/d?prefix=my_":                           "schema=NAME",
		"postgres://h/d?migrate=no":                           "off",
		"postgres://h/d?pool=1":                               "from 2 to 100",
		"postgres://h/d?pool=4&pool=5":                        "twice",
		"postgres://h/d?migrate":                              "name=value",
		"postgres://h/d?schema=%zz":                           "name=value",
		"postgres://h:x/d":                                    "invalid port",
		"postgres://h/d?sslmode=perhaps":                      "sslmode",
		"postgres://h/d?sslrootcert=/no/such&sslmode=require": "no such file",
		"mysql://h":                                           "names no database",
		"mysql://h/":                                          "names no database",
		"mysql://h/a/b":                                       "names no database",
		"mysql://h/d?schema=a":                                "prefix=NAME_",
		"mysql://h/d?prefix=1":                                "begins with no digit",
		"mysql://h/d?prefix=" + strings.Repeat("a", 41):       "up to 40",
		"mysql://h/d?parseTime=true":                          `no parameter "parseTime"`,
		"mysql://h:0/d":                                       "1 to 65535",
		"mysql://a,b/d":                                       "one name or address",
		"mysql://h/d?socket=/s":                               "a host and a socket",
		"mysql://h/d?tls=yes":                                 "write true, skip-verify",
		"mysql://h/d?ca=/no/such":                             "no such file",
		"mysql://h/d?tls=preferred&ca=/no/such":               "tls=true",
		"mysql://%zz@h/d":                                     "%25",
		"postgres://me:a@b@h/d":                               "write %40",
		"postgres://me:1/b@h/d":                               "%2F",
		"mysql://me:a@b@h/d":                                  "write %40",
	} {
		wantError(t, Check(url), lockkeeper.ErrInvalid, word)
	}
}

// What a person may have mistyped, with a password in it.
var withPasswords = []string{
	"postgres://me:s3cret@h/d", "postgres://me:s3cret@h:x/d", "postgres://me:s3cret@h/d?sslmode=perhaps",
	"postgres://me:s3cret@h/d?schema=A",
	"postgres://me:p@s3cret@h/d", "postgres://me:s3cret/s3cret@h/d", "postgres://me:s3cret?s3cret@h/d",
	"postgres://me:s3cret%zz@h/d",
	"postgres://me:p@s3cret%zz@h/d", "postgres://me:1/s3cret@h/d",
	"postgres://h/d?password=s3cret&user=me&sslmode=x", "postgres://h/d?sslpassword=s3cret&pool=0",
	"postgres:me:s3cret@h/d", "me:s3cret@tcp(h:3306)/d",
	"host=h user=me password=s3cret", "host=h user=me password='s3cret s3cret'", "mysql://me:s3cret@h",
	"mysql://me:s3cret@h:x/d", "mysql://me:s3cret:s3cret@h/d?x=y",
	"mysql://me:s3cret%zz@h/d", "mysql://me:s3cret@h/d?tls=x", "mariadb://me:s3cret@h/d?ca=/no/such",
	"mysql://me:s3cret@h/d?passwd=s3cret", "postgress://me:s3cret@h/d",
}

func TestPasswordsAreNotShown(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, url := range withPasswords {
		if shown := lockkeeper.RedactURL(url); strings.Contains(shown, "s3cret") || !strings.Contains(shown, "h") {
			t.Errorf("RedactURL(%q) is %q", url, shown)
		}
		if err := Check(url); err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Check(%q): %v", url, err)
		}
	}
	for _, url := range []string{"postgres://h:5432/d?schema=a", "postgres://me@h:5432/d", "mysql:///d?socket=/s",
		"postgres://", ""} {
		if shown := lockkeeper.RedactURL(url); shown != url {
			t.Errorf("RedactURL(%q) is %q", url, shown)
		}
	}
	if shown := lockkeeper.RedactURL("postgres://me:s3cret@h:5432/d?a=b"); shown != "postgres://me:xxxxx@h:5432/d?a=b" {
		t.Errorf("it shows %q", shown)
	}
}

// Connecting to a server that accepts a connection and sends nothing, such as one of another kind,
// fails in time.
func TestSilentServer(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, err := parse("mysql://me@" + silent.Addr().String() + "/d")
	if err != nil {
		t.Fatal(err)
	}
	connector := s.connector.(boundedConnector)
	connector.bound = 10 * time.Millisecond
	if _, err = connector.Connect(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "did not answer within 10ms") {
		t.Errorf("the error is %v", err)
	}
}

// Where the user, the password and the server come from, in MySQL's order.
func TestOptionFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	text := "# [client]\n[mysql]\npassword=no\n[client]\nuser = " +
		"fritz\nhost=db.example\nport=3307\npassword=\"a#b\\\"c\" # not \"this\"\n!include x\n[mysqld]\nsocket=/no\n"
	if err := os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]mysqlSettings{
		"mysql:///d":                   {user: "fritz", password: `a#b"c`, host: "db.example", port: "3307"},
		"mysql://me@h/d":               {user: "me", password: `a#b"c`, host: "h", port: "3307"},
		"mysql://me:x@h:1/d":           {user: "me", password: "x", host: "h", port: "1"},
		"mysql:///d?socket=/there":     {user: "fritz", password: `a#b"c`, port: "3307", socket: "/there"},
		"mysql://a%40b:%25%2F@[::1]/d": {user: "a@b", password: "%/", host: "::1", port: "3307"},
	} {
		a, err := split(url)
		if err != nil {
			t.Fatal(err)
		}
		var got mysqlSettings
		if err := got.read(a); err != nil {
			t.Fatal(err)
		}
		if err := got.addFile(); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: %+v; want %+v", url, got, want)
		}
	}
}

func TestOptionValue(t *testing.T) {
	for text, want := range map[string]string{
		"abc":       "abc",
		"a b  # c":  "a b",
		`"a b " x`:  "a b ",
		`'it''s'`:   "it",
		`a\sb\\c\q`: `a b\c\q`,
		"":          "",
		`"open`:     "open",
		"#":         "",
	} {
		if got := optionValue(text); got != want {
			t.Errorf("%s is read as %q; want %q", text, got, want)
		}
	}
}

// Servers that are too old, by the names that they give themselves.
func TestServerVersion(t *testing.T) {
	for _, test := range []struct {
		flavour flavour
		server  string
		old     bool
	}{
		{postgres, "12.20 (Debian 12.20-1)", true}, {postgres, "9.6.24", true}, {postgres, "13.0", false},
		{postgres, "18beta1", false}, {postgres, "17.2 (Ubuntu)", false},
		{mysql, "10.5.29-MariaDB-0+deb11u1", true}, {mysql, "10.6.0-MariaDB", false}, {mysql, "11.4.2-MariaDB-log", false},
		{mysql, "5.5.5-10.3.1-MariaDB", true},
		{mysql, "5.7.44-log", true}, {mysql, "8.0.36", false}, {mysql, "9.1.0", false}, {mysql, "unheard of", false},
	} {
		n := naming{flavour: test.flavour}
		if err := n.tooOld(test.server); (err != nil) != test.old {
			t.Errorf("%s %s: %v", test.flavour, test.server, err)
		}
	}
}
