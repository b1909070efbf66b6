package sqlitelock

import (
	"context"
	"net"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

const (
	prefix   = "sqlite:" // begins a URL of this engine; the name of the file follows as it is
	readOnly = "mode=ro" // is the only parameter: see Look
)

// URL returns the URL of the engine whose locks are in a file.
func URL(file string) string { return prefix + file }

// The optional abilities of the engine.
var (
	_ lockkeeper.Examiner       = (*Engine)(nil)
	_ lockkeeper.Noticer        = (*Engine)(nil)
	_ lockkeeper.ProcessWatcher = (*Engine)(nil)
)

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:   []string{"sqlite"},
		Form:    "sqlite:FILE",
		Example: "sqlite:/var/lib/myapp/locks.db",
		About:   "a file on this computer",
		Help: "locks of this computer, in a file. The file is made if it does not exist, but its directory must " +
			"exist. Not on a network file system: it can't keep its promises there. Users who are to exclude each other " +
			"need a directory for their group (2770). With ?mode=ro after it the file is only read",
		Page:       "docs/engines/sqlite.md",
		Guarantees: guarantees(),
		File:       true,
		ReadOnly:   readOnly,
		Misspelt:   []string{"sqlite3", "sqlight", "file"},
		Guess:      guessFile,
		Check:      checkURL,
		Open:       openURL,
	})
}

func checkURL(url string) error {
	file, query, asked := strings.Cut(strings.TrimPrefix(url, prefix), "?")
	switch {
	case asked && query != readOnly:
		return lockkeeper.Invalid("engine %q: %q is no parameter of a file: the only one is %s, which changes nothing; "+
			"a file with a ? in its name can't be named", url, query, readOnly)
	case file == "":
		return lockkeeper.Invalid("engine %q names no file: write sqlite:FILE, such as sqlite:/var/lib/myapp/locks.db", url)
	case strings.HasPrefix(file, "//") && !strings.HasPrefix(file, "///"):
		return lockkeeper.Invalid("engine %q names a host: write sqlite:FILE, such as sqlite:%s; a file has no host",
			url, file[1:])
	}
	return nil
}

func openURL(ctx context.Context, url string) (lockkeeper.Engine, error) {
	file, _, looks := strings.Cut(strings.TrimPrefix(url, prefix), "?")
	open := Open
	if looks {
		open = Look
	}
	e, err := open(ctx, filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	return e, nil
}

// guessFile guesses that a URL without a scheme is the name of a file, unless it looks like the
// address of a server.
func guessFile(url string) string {
	name, _, found := strings.Cut(url, ":")
	_, port, err := net.SplitHostPort(url)
	address := err == nil && port != "" && strings.Trim(port, "0123456789") == "" && !strings.Contains(url, "/")
	if url == "" || url == "localhost" || address || strings.Contains(url, "://") ||
		found && !strings.Contains(name, "/") {
		return ""
	}
	return URL(url)
}
