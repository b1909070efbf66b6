package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// unknownScheme is the scheme of URLs that name no registered engine. It has no abilities, so
// that callers need not check; what is wrong with such a URL, lockkeeper.CheckURL says.
var unknownScheme lockkeeper.Scheme

// schemeOf returns the scheme of an engine's URL.
func schemeOf(url string) *lockkeeper.Scheme {
	if s := lockkeeper.SchemeOf(url); s != nil {
		return s
	}
	return &unknownScheme
}

// hasTables reports whether the engine keeps its claims in tables that lk migrate makes.
func hasTables(url string) bool { return schemeOf(url).Migrate != nil }

// forOneProcess reports whether one process has the engine open for itself.
func forOneProcess(url string) bool {
	s := schemeOf(url)
	return s.Served || s.Guarantees.Reach == lockkeeper.InProcess
}

// fileOf returns the file or directory that an engine's URL names; "" if it names none.
func fileOf(url string) string {
	_, file, _ := strings.Cut(url[:queryOf(url)], ":")
	if !schemeOf(url).File || file == "" {
		return ""
	}
	return filepath.Clean(file)
}

// withParameter returns a URL with one more parameter, "name=value", unless it has that name
// already or the parameter is "".
func withParameter(url, parameter string) string {
	begin := queryOf(url)
	if parameter == "" {
		return url
	}
	if begin == len(url) {
		return url + "?" + parameter
	}
	name, _, _ := strings.Cut(parameter, "=")
	for given := range strings.SplitSeq(url[begin+1:], "&") {
		if key, _, _ := strings.Cut(given, "="); key == name {
			return url
		}
	}
	return url + "&" + parameter
}

// lookingURL returns the URL by which an engine is opened without creating its tables.
func lookingURL(url string) string { return withParameter(url, schemeOf(url).Existing) }

// queryOf returns where the query of a URL begins, with its "?"; the end if it has none. A
// password may contain a "?" too.
func queryOf(url string) int {
	host := 0
	if scheme, rest, found := strings.Cut(url, "://"); found && !schemeOf(url).File {
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			host = len(scheme) + len("://") + i
		}
	}
	if i := strings.IndexByte(url[host:], '?'); i >= 0 {
		return host + i
	}
	return len(url)
}

// absoluteURL makes the files of a URL absolute, so that a child that works in another directory
// finds the same engine. What is wrong with the rest of the URL, the engine says.
func absoluteURL(url string) (string, error) {
	s := schemeOf(url)
	if s.FileParameter != nil {
		return absoluteParameters(url, s.FileParameter)
	}
	scheme, file, _ := strings.Cut(url, ":")
	if !s.File || file == "" || strings.HasPrefix(file, ":") || filepath.IsAbs(file) {
		return url, nil
	}
	if strings.HasPrefix(file, "~") {
		return "", errTilde(url, scheme+":", file)
	}
	absolute, err := filepath.Abs(file)
	return scheme + ":" + absolute, err
}

// absoluteParameters makes the files absolute that parameters of a URL name: certificates, keys,
// tokens.
func absoluteParameters(url string, isFile func(name, value string) bool) (string, error) {
	server, query := url[:queryOf(url)], url[queryOf(url):]
	if query == "" {
		return url, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	parts := strings.Split(query[1:], "&")
	for i, part := range parts {
		name, file, _ := strings.Cut(part, "=")
		if file == "" || filepath.IsAbs(file) || !isFile(name, file) {
			continue
		}
		if strings.HasPrefix(file, "~") {
			return "", errTilde(url, server+"?"+name+"=", file)
		}
		parts[i] = name + "=" + filepath.Join(inQuery.Replace(here), file)
	}
	return server + "?" + strings.Join(parts, "&"), nil
}

// inQuery writes a file's name as it stands in the query of a URL.
var inQuery = strings.NewReplacer("%", "%25", "&", "%26", "+", "%2B", "#", "%23", ";", "%3B", " ", "%20")

// errTilde says what is wrong with a URL in which ~ stands for a home directory; before is what
// precedes the file.
func errTilde(url, before, file string) error {
	return &exit{code: exitUsage, say: fmt.Errorf("engine %q: the shell has not put your home directory in place of ~: "+
		"write it in full, or as \"%s$HOME/%s\"",
		url, before, strings.TrimPrefix(strings.TrimPrefix(file, "~"), "/"))}
}

// databaseRemedy returns the remedy for a database that can't be used.
func databaseRemedy(err error) string {
	switch {
	case errors.Is(err, lockkeeper.ErrNoTables):
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
