// Package engine opens an engine by its URL: it is the one map from URL schemes
// to engines.
package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
)

// scheme is one kind of engine.
type scheme struct {
	name string
	form string // of its URLs, for people
	// check finds what is wrong with the rest of a URL; open is given what passed.
	check func(rest string) error
	open  func(ctx context.Context, rest string) (lockkeeper.Engine, error)
}

var schemes = []scheme{
	{"mem", "mem: (this process alone)", checkMem, openMem},
	{"sqlite", "sqlite:FILE (this computer)", checkSQLite, openSQLite},
}

// Open connects a client to the engine that the URL names:
//
//	mem:          locks within this process; each call makes a new engine
//	sqlite:FILE   locks of this computer, in a file that any number of processes
//	              share; it is made if it is not there, with its directory
//
// FILE is taken as it is written, relative to the working directory unless it is
// absolute. An unknown scheme, or what its engine refuses, is an ErrInvalid that
// says what would be right. ctx bounds the opening alone. Closing the client
// closes the engine.
func Open(ctx context.Context, url string, options ...lockkeeper.ClientOption) (*lockkeeper.Client, error) {
	e, err := New(ctx, url)
	if err != nil {
		return nil, err
	}
	return lockkeeper.New(e, options...), nil
}

// New opens the engine alone, for those who need more of it than a client shows.
func New(ctx context.Context, url string) (lockkeeper.Engine, error) {
	s, rest, err := parse(url)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, rest)
}

// Check finds what is wrong with the URL by itself, and opens nothing: an
// ErrInvalid that says what would be right; nil if there is nothing.
func Check(url string) error {
	_, _, err := parse(url)
	return err
}

// parse finds the scheme of a URL, and checks the rest.
func parse(url string) (s scheme, rest string, err error) {
	name, rest, found := strings.Cut(url, ":")
	for _, s := range schemes {
		if found && name == s.name {
			return s, rest, s.check(rest)
		}
	}
	var forms []string
	for _, s := range schemes {
		if s.name != "mem" { // who means that one knows it: it is for Go programs only
			forms = append(forms, s.form)
		}
	}
	meant := ""
	if !found || strings.Contains(name, "/") {
		meant = "; did you mean sqlite:" + url + "?"
	}
	return scheme{}, "", lockkeeper.Invalid("engine %q: a URL is %s%s", url, strings.Join(forms, " or "), meant)
}

func checkMem(rest string) error {
	if rest != "" {
		return lockkeeper.Invalid("engine \"mem:%s\": nothing follows mem: since its locks have no place but this process", rest)
	}
	return nil
}

func openMem(context.Context, string) (lockkeeper.Engine, error) { return memlock.New(), nil }

func checkSQLite(file string) error {
	if file == "" {
		return lockkeeper.Invalid("engine \"sqlite:\" names no file: write sqlite:FILE, such as sqlite:/var/lib/lockkeeper/locks.db")
	}
	if strings.HasPrefix(file, "//") && !strings.HasPrefix(file, "///") {
		return lockkeeper.Invalid("engine \"sqlite:%s\" names a host: write sqlite:FILE, such as sqlite:%s; a file has no host", file, file[1:])
	}
	return nil
}

func openSQLite(ctx context.Context, file string) (lockkeeper.Engine, error) {
	file = filepath.Clean(file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "no directory for " + file, Cause: err}
	}
	e, err := sqllock.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	return e, nil
}
