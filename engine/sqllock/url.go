package sqllock

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
)

const (
	defaultSchema = "lockkeeper"
	defaultPrefix = "lockkeeper_"

	defaultPool = 8 // connections
	leastPool   = 2
	mostPool    = 100

	connectBound = 10 * time.Second // unless the URL says otherwise
)

// source is what a URL names.
type source struct {
	naming
	pool      int  // how many connections at most
	migrates  bool // unless the URL says migrate=off
	connector driver.Connector
	plainly   *atomic.Bool // of Postgres: prepare no statements on new connections
	shown     string       // the URL without its password
}

// Check returns an ErrInvalid that says what would be right if the URL of a database is wrong by
// itself, see [Open]. It connects to nothing. Files that the URL names must exist.
func Check(url string) error {
	_, err := parse(url)
	return err
}

// address is a URL in its parts, as they are written: passwords often contain characters that they
// should not.
type address struct {
	shown    string
	scheme   string
	userinfo string // with its "@"; "" if there is none
	host     string // with ports, perhaps of several hosts
	path     string // with its "/"
	query    []parameter
}

// parameter is one parameter of a URL; raw is how it is written.
type parameter struct{ name, value, raw string }

// parse returns what a URL names, and refuses wrong URLs.
func parse(text string) (source, error) {
	a, err := split(text)
	if err != nil {
		return source{}, err
	}
	s := source{pool: defaultPool, migrates: true, shown: a.shown}
	switch a.scheme {
	case "postgres", "postgresql":
		s.naming = naming{postgres, defaultSchema}
	case "mysql", "mariadb":
		s.naming = naming{mysql, defaultPrefix}
	default:
		return source{}, a.invalid("a database is postgres://HOST/DATABASE or mysql://HOST/DATABASE")
	}
	if err := s.takeOwn(&a); err != nil {
		return source{}, err
	}
	if s.flavour == postgres {
		s.plainly = new(atomic.Bool)
		s.connector, err = postgresConnector(a, s.plainly)
	} else {
		s.connector, err = mysqlConnector(a)
	}
	return s, err
}

// split splits a URL where the drivers and libpq do.
func split(text string) (address, error) {
	a := address{shown: lockkeeper.RedactURL(text)}
	scheme, remaining, found := strings.Cut(text, "://")
	if !found {
		return a, a.invalid("write it as postgres://HOST/DATABASE or mysql://HOST/DATABASE")
	}
	a.scheme = scheme
	if i := strings.IndexAny(remaining, "@/"); i >= 0 && remaining[i] == '@' {
		a.userinfo, remaining = remaining[:i+1], remaining[i+1:]
	}
	remaining, query, _ := strings.Cut(remaining, "?")
	if i := strings.IndexByte(remaining, '/'); i >= 0 {
		remaining, a.path = remaining[:i], remaining[i:]
	}
	a.host = remaining
	if strings.Contains(a.host, "@") || (a.userinfo == "" && strings.Contains(a.path, "@")) {
		return a, a.invalid("it has an @ or a / too many: in a user or a password write %%40 and %%2F for them")
	}
	seen := make(map[string]bool)
	for raw := range strings.SplitSeq(query, "&") {
		if raw == "" {
			continue
		}
		name, value, found := strings.Cut(raw, "=")
		plain, err := url.QueryUnescape(value)
		if err != nil || !found {
			return a, a.invalid("its parameter %q can't be read: write name=value, with %%25 for a %%", name)
		}
		if seen[name] {
			return a, a.invalid("its parameter %q is there twice", name)
		}
		seen[name] = true
		a.query = append(a.query, parameter{name, plain, raw})
	}
	return a, nil
}

func (a address) invalid(format string, args ...any) error {
	return lockkeeper.Invalid("%s: %s", a.shown, fmt.Sprintf(format, args...))
}

// takeOwn removes the parameters of lockkeeper from the URL.
func (s *source) takeOwn(a *address) error {
	var err error
	a.query = slices.DeleteFunc(a.query, func(p parameter) bool {
		if err != nil {
			return false
		}
		switch p.name {
		case "schema":
			err = s.rename(postgres, p.value)
		case "prefix":
			err = s.rename(mysql, p.value)
		case "migrate":
			s.migrates = p.value != "off"
			if p.value != "off" && p.value != "on" {
				err = lockkeeper.Invalid("migrate=%s: write on, which is the default, or off", p.value)
			}
		case "pool":
			s.pool, err = strconv.Atoi(p.value)
			if err != nil || s.pool < leastPool || s.pool > mostPool {
				err = lockkeeper.Invalid("pool=%s: write the greatest number of connections, from %d to %d", p.value, leastPool,
					mostPool)
			}
		default:
			return false
		}
		return true
	})
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		return a.invalid("%s", e.Detail)
	}
	return err
}

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]*$`) })

const (
	maxSchema = 63 // bytes
	maxPrefix = 40
)

// rename sets another schema (of Postgres) or prefix (of MySQL). Such names need no quotes in SQL,
// and are the same on every file system.
func (n *naming) rename(f flavour, name string) error {
	switch {
	case f == postgres && n.flavour == mysql:
		return lockkeeper.Invalid("schema=%s: the tables in MariaDB and MySQL have a prefix instead, prefix=NAME_", name)
	case f == mysql && n.flavour == postgres:
		return lockkeeper.Invalid("prefix=%s: the tables in Postgres have a schema of their own, schema=NAME", name)
	case f == postgres && (!namePattern().MatchString(name) || len(name) > maxSchema || strings.HasPrefix(name, "pg_") ||
		name == "information_schema"):
		return lockkeeper.Invalid("schema=%s: a schema has up to 63 lower-case letters, digits and _, begins with no "+
			"digit, and is not one of the system's", name)
	case f == mysql && (!namePattern().MatchString(name) || len(name) > maxPrefix):
		return lockkeeper.Invalid("prefix=%s: a prefix has up to 40 lower-case letters, digits and _, and begins with no "+
			"digit", name)
	}
	n.prefix = name
	return nil
}

// postgresConnector leaves the URL to the driver, which knows all that libpq knows: several hosts,
// PGPASSWORD, ~/.pgpass, PGSERVICE.
func postgresConnector(a address, plainly *atomic.Bool) (driver.Connector, error) {
	text := "postgres://" + a.userinfo + a.host + a.path
	between := "?"
	for _, p := range a.query {
		text += between + p.raw
		between = "&"
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, a.invalid("%s", withoutURL(err))
	}
	// Statements are prepared, which halves their cost, until it turns out that each may reach
	// another connection to the database, as behind PgBouncer when it pools transactions: see
	// postgresDialect.with. Their names are derived from their texts, so statements of other
	// processes with the same name are the same.
	unprepared := func(_ context.Context, c *pgx.ConnConfig) error {
		if plainly.Load() {
			c.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		return nil
	}
	noted := func(_ context.Context, c *pgx.Conn) error {
		c.PgConn().CustomData()[preparing] = c.Config().DefaultQueryExecMode != pgx.QueryExecModeExec
		return nil
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "lockkeeper"
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectBound
	}
	// No ping for a connection that was idle for some seconds: that would cost a round trip, and a
	// transaction that fails is repeated anyway.
	ping := stdlib.OptionShouldPing(shouldPing)
	config.DialFunc = onlyToConnect(config.DialFunc)
	return connector{stdlib.GetConnector(*config, ping, stdlib.OptionBeforeConnect(unprepared),
		stdlib.OptionAfterConnect(noted))}, nil
}

// A connector makes connections that cancel nothing. When the driver gives an answer up, it asks the server over
// another connection to cancel the statement. A commit that waits for a synchronous replica would wait no more then,
// and others would see what no replica has.
type connector struct{ driver.Connector }

// connecting is in the context of a call of Connect, and so in that of its dials.
type connecting struct{}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	return c.Connector.Connect(context.WithValue(ctx, connecting{}, true))
}

// onlyToConnect returns a dial that fails outside of Connect: for the requests to cancel.
func onlyToConnect(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil {
			return nil, errors.New("statements are not cancelled")
		}
		return dial(ctx, network, address)
	}
}

// preparing marks connections on which statements are prepared.
const preparing = "lockkeeper prepares"

// withoutURL returns what is wrong with a URL without the URL, which the message of the driver
// repeats.
func withoutURL(err error) string {
	var e *pgconn.ParseConfigError
	if errors.As(err, &e) {
		text := e.Error()
		if i := strings.LastIndex(text, "`: "); i >= 0 {
			return text[i+len("`: "):]
		}
	}
	return "it can't be read as a URL of Postgres"
}
