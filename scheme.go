package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Scheme is one kind of engine, as URLs name it. Engines register their schemes with
// [Register]. A Scheme describes its engine as data, for commands, documents and programs that do
// not open one.
type Scheme struct {
	Names   []string // how its URLs begin, up to the colon; the first name is the usual one
	Form    string   // of its URLs, for people: "sqlite:FILE"
	Example string   // a URL of that form
	About   string   // where the claims are kept, in a few words: "a file on this computer"
	Help    string   // how to write such a URL, in sentences
	Page    string   // its page of documentation, as a path from the top of the repository

	// Guarantees are those of every engine of this scheme. Those of a Server are known only
	// when it is open, but for Name and Reach.
	Guarantees Guarantees

	// File: what follows the colon is the name of a file or of a directory, up to a "?". Such a
	// URL has no password in it.
	File bool

	// Server: the engine is a client of a Lockkeeper server.
	Server bool

	// Served: one process, a server, has such an engine open, and others use the server. It is so for
	// every engine whose Guarantees.Reach is InProcess, too.
	Served bool

	// ReadOnly is the parameter of a URL, such as "mode=ro", with which Open changes nothing; ""
	// if there is none. If the file does not exist, Open returns an error that matches
	// [fs.ErrNotExist].
	ReadOnly string

	// Existing is the parameter with which Open creates no tables, "" if there is none. If they
	// do not exist, Open returns an [ErrUnavailable] whose cause is [ErrNoTables].
	Existing string

	// FileParameter reports whether a parameter of a URL names a file; nil: none does.
	FileParameter func(name, value string) bool

	// Variables are the environment variables that this project defines for the engine.
	Variables []string

	// Guess returns the URL that the author of url probably meant; "" if it is not of this scheme.
	// url names no registered scheme, and has no password. Other spellings of the scheme belong in
	// Misspelt.
	Guess    func(url string) string
	Misspelt []string // what people write in place of Names

	// Check returns an [ErrInvalid] with every fault of the URL, and the correction; nil if it is
	// valid. It opens nothing. Open calls it first.
	Check func(url string) error

	// Open opens the engine. ctx bounds the opening alone.
	Open func(ctx context.Context, url string) (Engine, error)

	// Examine checks the surroundings of a URL without opening the engine, such as the permissions
	// of a token file; nil: there is nothing to check.
	Examine func(url string) []Finding

	// Migrate brings the tables of an engine up to date. Migration returns, as SQL, the statements
	// of Migrate for a database without tables. Both are nil for engines whose tables no person
	// manages.
	Migrate   func(ctx context.Context, url string) error
	Migration func(url string) (string, error)

	// Reset makes the stores of an engine forget all claims, if they can't be used anymore or shall
	// belong to another engine. It returns what is lost, in lines for people. Unless sure is set, it
	// changes nothing. nil: the engine's files or tables can be removed instead.
	Reset func(ctx context.Context, url string, sure bool) (lost string, err error)

	// Dump writes the stored claims as text for people, and changes nothing; nil: other programs
	// can read the engine's storage.
	Dump func(ctx context.Context, url string, w io.Writer) error
}

// Name returns the usual name of the scheme.
func (s *Scheme) Name() string { return s.Names[0] }

// ErrNoTables is the cause of an [ErrUnavailable] of Open: the database has no tables of
// Lockkeeper yet, and the URL forbids Open to create them. So no claim is held there.
var ErrNoTables = errors.New("there are no tables of lockkeeper yet")

// registry has the registered schemes. A registered scheme never changes.
var registry struct {
	sync.RWMutex
	schemes []*Scheme
}

// Register makes an engine available to [Open]. An engine calls it in the init function of its
// package. It panics if s has no name, no Check or no Open, or if one of its names is registered
// already.
func Register(s Scheme) {
	registry.Lock()
	defer registry.Unlock()
	if len(s.Names) == 0 || s.Check == nil || s.Open == nil {
		panic(fmt.Sprintf("lockkeeper: Register: the scheme %q lacks a name, Check or Open", s.Names))
	}
	for _, name := range s.Names {
		if findScheme(name) != nil {
			panic("lockkeeper: Register called twice for the scheme " + name)
		}
	}
	registry.schemes = append(registry.schemes, &s)
}

// findScheme returns the scheme of that name; nil if there is none. The caller holds the lock.
func findScheme(name string) *Scheme {
	for _, s := range registry.schemes {
		if slices.Contains(s.Names, name) {
			return s
		}
	}
	return nil
}

// Schemes returns the registered schemes, sorted by name. They must not be changed.
func Schemes() []*Scheme {
	registry.RLock()
	defer registry.RUnlock()
	return slices.SortedFunc(slices.Values(registry.schemes), func(a, b *Scheme) int {
		return strings.Compare(a.Name(), b.Name())
	})
}

// SchemeOf returns the scheme that url names, or nil if url names no registered scheme. It
// must not be changed.
func SchemeOf(url string) *Scheme {
	name, _, found := strings.Cut(url, ":")
	if !found {
		return nil
	}
	registry.RLock()
	defer registry.RUnlock()
	return findScheme(name)
}

// Open opens the engine that url names, by its scheme. [New] makes a client of it, and closing
// the client closes the engine.
//
// The engine must be registered: a program imports the packages of the engines that it uses,
// or engine/all, which imports every one. ctx bounds the opening alone. For an invalid URL
// the error is an [ErrInvalid] with the correction.
func Open(ctx context.Context, url string) (Engine, error) {
	if err := CheckURL(url); err != nil {
		return nil, err
	}
	return SchemeOf(url).Open(ctx, url)
}

// CheckURL returns an [ErrInvalid] with every fault of the URL of an engine, and the correction;
// nil if it is valid. It opens nothing.
func CheckURL(url string) error {
	if s := SchemeOf(url); s != nil {
		return s.Check(url)
	}
	shown := RedactURL(url)
	if meant := guessURL(shown); meant != "" {
		return Invalid("engine %q is unknown: did you mean %s?", shown, meant)
	}
	var forms []string
	for _, s := range Schemes() {
		if !s.Served && s.Guarantees.Reach != InProcess { // a misspelt URL seldom means one of these
			forms = append(forms, s.Form)
		}
	}
	if len(forms) == 0 {
		return Invalid("engine %q is unknown: no such engine is registered (forgotten import?)", shown)
	}
	return Invalid("engine %q is unknown: there are %s", shown, strings.Join(forms, ", "))
}

// guessURL returns the URL that the author of url probably meant; "" if none is likely.
func guessURL(url string) string {
	schemes := Schemes()
	name, rest, found := strings.Cut(url, ":")
	for _, s := range schemes {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		if i := slices.IndexFunc(s.Names, same); found && i >= 0 {
			return s.Names[i] + ":" + rest
		}
		if found && slices.ContainsFunc(s.Misspelt, same) {
			return s.Name() + ":" + rest
		}
	}
	for _, s := range schemes {
		if s.Guess == nil {
			continue
		}
		if meant := s.Guess(url); meant != "" {
			return meant
		}
	}
	return ""
}

// RedactURL returns the URL of an engine as anybody may read it: with xxxxx in place of
// passwords. It accepts malformed URLs too, and hides too much rather than too little.
func RedactURL(url string) string {
	if s := SchemeOf(url); s != nil && s.File {
		return url
	}
	url = secretParameter().ReplaceAllString(url, "${1}xxxxx")
	at := strings.LastIndex(url, "@")
	if at < 0 {
		return url
	}
	user := 0
	if i := strings.Index(url[:at], "://"); i >= 0 {
		user = i + len("://")
	}
	colon := strings.Index(url[user:at], ":")
	if colon < 0 {
		return url
	}
	return url[:user+colon] + ":xxxxx" + url[at:]
}

// secretParameter matches a parameter of a URL, or a setting as libpq writes them, that is secret.
var secretParameter = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)((?:password|passwd|pwd)\s*=\s*)('[^']*'|[^&\s]*)`)
})
