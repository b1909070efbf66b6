package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
)

// engineVariable names the engine if --engine does not. lk run sets it for its command.
const engineVariable = "LOCKKEEPER_URL"

// connection is a client together with its engine and the URL.
type connection struct {
	*lockkeeper.Client
	engine   lockkeeper.Engine
	attached *attachments // of the client
	url      string
	closed   bool // closeBy was called
	named    bool // --engine or the environment names the engine; else it is the default file
}

// connect opens the engine that --engine or an argument names, else LOCKKEEPER_URL, else the
// default file.
func (a *app) connect(ctx context.Context, options ...lockkeeper.ClientOption) (*connection, error) {
	url, named, err := a.chooseURL()
	if err != nil {
		return nil, err
	}
	if !named {
		if err := a.prepareDefault(ctx); err != nil {
			return nil, err
		}
	}
	e, err := a.open(ctx, a.openedURL(url))
	if err != nil && named {
		return nil, fmt.Errorf("%s: %w", a.engineSource(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (another engine is named by --engine or %s, such as %s)", err,
			engineVariable, sqlitelock.URL("/var/tmp/locks.db"))
	}
	if e.Guarantees().Reach == lockkeeper.InProcess && !a.within {
		e.Close()
		return nil, &exit{code: exitUsage, say: errors.New(withinProcess(url))}
	}
	if !a.makesNothing {
		a.noteSudo(named)
	}
	attached := noteAttachments(a.tracing(e))
	return &connection{
		Client:   lockkeeper.New(attached, options...),
		engine:   e,
		attached: attached,
		url:      url,
		named:    named,
	}, nil
}

// withinProcess explains why lk can't use an engine within one process.
func withinProcess(url string) string {
	if dir := fileOf(url); dir != "" {
		return url + " is for one process alone: lk serve --data " + dir + " serves it to all, and says how to reach it"
	}
	return url + " keeps locks within one process, so that lk would exclude nobody: name another engine"
}

// openedURL is the URL by which this verb opens the engine.
func (a *app) openedURL(url string) string {
	if s := schemeOf(url); a.readOnly && s.ReadOnly != "" {
		return withParameter(url, s.ReadOnly)
	}
	if a.makesNothing {
		return lookingURL(url)
	}
	return url
}

// connectReadOnly is connect for read-only verbs. If the file or the tables do not exist, it prints that
// nothing is held, and returns nil.
func (a *app) connectReadOnly(ctx context.Context) (*connection, error) {
	a.readOnly = true
	return a.connectExisting(ctx)
}

// connectExisting is connect for verbs that act on existing claims, so they create no file and no tables.
// If these do not exist, it returns nil, as connectReadOnly does.
func (a *app) connectExisting(ctx context.Context) (*connection, error) {
	if file := a.missingFile(); file != "" {
		fmt.Fprintf(a.stderr, "lk: nothing is held, and nobody waits: %s does not exist yet\n", file)
		return nil, nil
	}
	a.makesNothing = true
	client, err := a.connect(ctx)
	if url, _, _ := a.chooseURL(); isMissing(err, url) { // without an error: connect has called it already
		what := "keeps no locks yet"
		if hasTables(url) {
			what = "has no tables of lockkeeper yet"
		}
		fmt.Fprintf(a.stderr, "lk: nothing is held, and nobody waits: %s %s\n", lockkeeper.RedactURL(url), what)
		return nil, nil
	}
	if err == nil {
		a.noteSudo(client.named)
	}
	return client, err
}

// isMissing reports whether err says that the file or the tables of url do not exist, so that
// nobody holds anything.
func isMissing(err error, url string) bool {
	return errors.Is(err, lockkeeper.ErrNoTables) || fileOf(url) != "" && errors.Is(err, fs.ErrNotExist)
}

// missingFile returns the file of the engine if it does not exist, else "".
func (a *app) missingFile() string {
	url, _, err := a.chooseURL()
	if err != nil {
		return ""
	}
	file := fileOf(url)
	if _, err := os.Stat(file); file == "" || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return file
}

// checkEngine collects the problems of the chosen engine that lk can find without opening it.
func (a *app) checkEngine() {
	url, named, err := a.chooseURL()
	if err == nil && named {
		if err = lockkeeper.CheckURL(url); err == nil && forOneProcess(url) && !a.within {
			err = errors.New(withinProcess(url))
		}
	}
	var e *lockkeeper.Error
	switch {
	case err == nil:
	case errors.As(err, &e):
		a.bad.addf("%s: %s", a.engineSource(), e.Detail)
	case named:
		a.bad.addf("%s: %s", a.engineSource(), err)
	default:
		a.bad.add(err)
	}
}

// engineSource says where the choice of the engine comes from: a flag, a
// variable, an argument, or "the default".
func (a *app) engineSource() string {
	switch {
	case a.engineArg != "":
		return "the argument"
	case a.engineFlag != "":
		return "--engine"
	case os.Getenv(engineVariable) != "":
		return engineVariable
	}
	return "the default"
}

func (a *app) chooseURL() (url string, named bool, err error) {
	url = cmp.Or(a.engineArg, a.engineFlag, os.Getenv(engineVariable))
	if url != "" {
		url, err = absoluteURL(url)
		return url, true, err
	}
	url, err = defaultURL()
	return url, false, err
}

// sessionFile returns the file by which the kernel knows the processes of a session; nil if the
// engine has none. While a child that inherited it outlives a killed lk, nobody else is granted the
// lock, for at most the TTL.
func (c *connection) sessionFile(session string) *os.File {
	if has, ok := c.engine.(lockkeeper.ProcessWatcher); ok {
		return has.SessionFile(session)
	}
	return nil
}

// homeRemedy is the remedy if there is no folder for the default engine.
const homeRemedy = "set HOME or XDG_STATE_HOME to a folder of yours, or name an engine with --engine or " +
	engineVariable

// stateFolder is lockkeeper's folder in the user's state directory, as the XDG
// base directory specification has it.
func stateFolder() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "lockkeeper"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return "", &exit{code: exitUsage, say: errors.New("there is no home directory to keep the locks in: " + homeRemedy)}
	}
	return filepath.Join(home, ".local", "state", "lockkeeper"), nil
}
