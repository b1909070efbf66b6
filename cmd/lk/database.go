package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
)

// isDatabase says whether an engine's URL names a database.
func isDatabase(url string) bool {
	scheme, _, found := strings.Cut(url, ":")
	return found && slices.Contains([]string{"postgres", "postgresql", "mysql", "mariadb"}, scheme)
}

// shownURL is an engine's URL as it may be shown to anybody: without a password.
func shownURL(url string) string {
	if fileOf(url) != "" {
		return url
	}
	return sqllock.Redacted(url)
}

// lookingURL is an engine's URL for who only looks, and so makes no tables.
func lookingURL(url string) string {
	if !isDatabase(url) || strings.Contains(url, "migrate=") {
		return url
	}
	if queryOf(url) < len(url) {
		return url + "&migrate=off"
	}
	return url + "?migrate=off"
}

// queryOf is where the query of a URL begins, with its "?"; the end if it has none. The
// password of a database may have a "?", too.
func queryOf(url string) int {
	host := 0
	if i := strings.IndexAny(strings.ReplaceAll(url, "://", ":::"), "@/"); isDatabase(url) && i >= 0 && url[i] == '@' {
		host = i
	}
	if i := strings.IndexByte(url[host:], '?'); i >= 0 {
		return host + i
	}
	return len(url)
}

// namesFile says whether a parameter of a database's URL names a file.
func namesFile(key, value string) bool {
	switch key {
	case "ca", "cert", "key", "sslcert", "sslkey", "passfile", "servicefile":
		return true
	case "sslrootcert":
		return value != "system"
	}
	return false
}

// databaseRemedy is what to do about a database that could not be used.
func databaseRemedy(err error) string {
	switch {
	case errors.Is(err, sqllock.ErrNoTables):
		return "have somebody run lk migrate who may make tables"
	case strings.Contains(err.Error(), "lk migrate"):
		return "do as it says; lk help migrate tells more"
	case errors.Is(err, lockkeeper.ErrDenied):
		return "see that the user is the right one, and that its password is where it is looked for; lk help migrate says " +
			"where"
	case errors.Is(err, lockkeeper.ErrInvalid):
		return "correct the URL; lk help engines says what it can be"
	}
	return "see that the database runs and can be reached from here, or name another engine"
}
