// Package engine opens an engine by its URL: it is the one map from URL schemes
// to engines.
package engine

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
)

// scheme is one kind of engine.
type scheme struct {
	name string
	form string // of its URLs, for people; "": the same as the scheme before it
	// alone: one process has it for itself, so it is not offered to who has
	// mistyped what others share.
	alone bool
	// check finds what is wrong with the rest of a URL; open is given what passed.
	check func(rest string) error
	open  func(ctx context.Context, rest string) (lockkeeper.Engine, error)
}

var schemes = []scheme{
	{"mem", "mem:", true, checkMem, openMem},
	{"disk", "disk:DIR", true, checkDisk, disklock.Open},
	{"sqlite", "sqlite:FILE", false, checkSQLite, openSQLite},
	{"postgres", "postgres://HOST/DATABASE", false, checkDatabase("postgres"), openDatabase("postgres")},
	{"postgresql", "", false, checkDatabase("postgresql"), openDatabase("postgresql")},
	{"mysql", "mysql://HOST/DATABASE", false, checkDatabase("mysql"), openDatabase("mysql")},
	{"mariadb", "", false, checkDatabase("mariadb"), openDatabase("mariadb")},
	{"lk", "lk://HOST", false, checkServer("lk"), openServer("lk")},
	{"lks", "lks://HOST", false, checkServer("lks"), openServer("lks")},
}

// Open connects a client to the engine that the URL names:
//
//	mem:          locks within this process; each call makes a new engine
//	disk:DIR      locks of this process, which is mostly a server, in a journal in
//	              a directory, so that they outlive it; it is made if it is not there
//	sqlite:FILE   locks of this computer, in a file that any number of processes
//	              share; it is made if it is not there, but its directory must be;
//	              after ?mode=ro it is only looked at, see [sqlitelock.Look]
//	postgres://HOST/DATABASE, mysql://HOST/DATABASE
//	              locks in tables of a database, which are made if they are not there;
//	              postgresql: and mariadb: are the same; see [sqllock.Open]
//	lk://HOST     locks of a server ("lk serve") that other computers reach; a
//	              port that is not 7420 follows a colon, further servers that
//	              share its engine follow commas; ?token=FILE may be last
//	lks://HOST    the same, by TLS; ?ca=FILE&cert=FILE&key=FILE&token=FILE, or some
//	              of these, may be last, see [remote.Open]
//
// FILE and DIR are taken as they are written, relative to the working directory
// unless they are absolute. An unknown scheme, or what its engine refuses, is an ErrInvalid that
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
	return scheme{}, "", unknown(url)
}

func checkMem(rest string) error {
	if rest != "" {
		return lockkeeper.Invalid("engine \"mem:%s\": nothing follows mem: since its locks have no place but this process",
			rest)
	}
	return nil
}

func openMem(context.Context, string) (lockkeeper.Engine, error) { return memlock.New(), nil }

func checkDisk(dir string) error {
	if dir == "" {
		return lockkeeper.Invalid("engine \"disk:\" names no directory: write disk:DIR, such as disk:/var/lib/lockkeeper")
	}
	if strings.HasPrefix(dir, "//") && !strings.HasPrefix(dir, "///") {
		return lockkeeper.Invalid("engine \"disk:%s\" names a host: write disk:DIR, such as disk:%s; a directory has no host",
			dir, dir[1:])
	}
	return nil
}

func checkSQLite(rest string) error {
	file, query, asked := strings.Cut(rest, "?")
	if asked && query != "mode=ro" {
		return lockkeeper.Invalid("engine \"sqlite:%s\": %q is no parameter of a file: "+
			"mode=ro is the only one, which opens it to look at it alone; "+
			"a file with a ? in its name can't be named", rest, query)
	}
	if file == "" {
		return lockkeeper.Invalid("engine \"sqlite:\" names no file: write sqlite:FILE, such as " +
			"sqlite:/var/lib/lockkeeper/locks.db")
	}
	if strings.HasPrefix(file, "//") && !strings.HasPrefix(file, "///") {
		return lockkeeper.Invalid("engine \"sqlite:%s\" names a host: write sqlite:FILE, such as sqlite:%s; a file has "+
			"no host", file, file[1:])
	}
	return nil
}

func openSQLite(ctx context.Context, file string) (lockkeeper.Engine, error) {
	file, _, looks := strings.Cut(file, "?")
	open := sqlitelock.Open
	if looks {
		open = sqlitelock.Look
	}
	e, err := open(ctx, filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	return e, nil
}

func checkDatabase(scheme string) func(string) error {
	return func(rest string) error { return sqllock.Check(scheme + ":" + rest) }
}

func openDatabase(scheme string) func(context.Context, string) (lockkeeper.Engine, error) {
	return func(ctx context.Context, rest string) (lockkeeper.Engine, error) {
		e, err := sqllock.Open(ctx, scheme+":"+rest)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}

func checkServer(scheme string) func(string) error {
	return func(rest string) error {
		addresses, found := strings.CutPrefix(rest, "//")
		if !found || addresses == "" {
			return lockkeeper.Invalid("engine \"%s:%s\" names no server: write %[1]s://HOST or %[1]s://HOST:PORT, such as "+
				"%[1]s://127.0.0.1:7420", scheme, rest)
		}
		return remote.Check(scheme + ":" + rest)
	}
}

func openServer(scheme string) func(context.Context, string) (lockkeeper.Engine, error) {
	return func(ctx context.Context, rest string) (lockkeeper.Engine, error) {
		e, err := remote.Open(ctx, scheme+":"+rest)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}
