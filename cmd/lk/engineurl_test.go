package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestLookingURL(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://h/d":                         "postgres://h/d?migrate=off",
		"mysql://h/d?prefix=a_":                  "mysql://h/d?prefix=a_&migrate=off",
		"postgres://u:p?w@h/d":                   "postgres://u:p?w@h/d?migrate=off",
		"mariadb://h/d?migrate=on":               "mariadb://h/d?migrate=on",
		"sqlite:/a/b.db":                         "sqlite:/a/b.db",
		"lk://h?token=a":                         "lk://h?token=a",
		"postgres://migrate=on@h/d?a=migrate=on": "postgres://migrate=on@h/d?a=migrate=on&migrate=off",
		"postgresql://h/d?sslmode=prefer":        "postgresql://h/d?sslmode=prefer&migrate=off",
	} {
		if got := lookingURL(url); got != want {
			t.Errorf("%s: %s; want %s", url, got, want)
		}
	}
}

func TestShownURL(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:s3cret@h/d": "postgres://u:xxxxx@h/d",
		"mysql://u@h/d":           "mysql://u@h/d",
		"sqlite:/a:b@c/locks.db":  "sqlite:/a:b@c/locks.db",
		"lk://a:1,b:2":            "lk://a:1,b:2",
	} {
		if got := lockkeeper.RedactURL(url); got != want {
			t.Errorf("%s is shown as %s; want %s", url, got, want)
		}
	}
}

// A child that works elsewhere finds the same certificates.
func TestFilesOfDatabases(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"postgres://u:p?w@h/d?sslrootcert=ca.pem&sslmode=verify-full": "postgres://u:p?w@h/d?sslrootcert=" +
			filepath.Join(here, "ca.pem") + "&sslmode=verify-full",
		"postgres://h/d?sslrootcert=system": "postgres://h/d?sslrootcert=system",
		"mysql://h/d?prefix=a_&ca=/etc/ca.pem&cert=c.pem": "mysql://h/d?prefix=a_&ca=/etc/ca.pem&cert=" +
			filepath.Join(here, "c.pem"),
	} {
		if got, err := absoluteURL(url); got != want || err != nil {
			t.Errorf("%s becomes %s, %v; want %s", url, got, err, want)
		}
	}
}

// The sessions in testdata/database are those of a database.
func TestSessionsAtDatabase(t *testing.T) {
	server := testdb.Postgres(t)
	runSessions(t, "testdata/database", "database", func(env *testscript.Env) error {
		env.Setenv(engineVariable, server.Database(t))
		return nil
	})
}
