package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/lockkeeper/lockkeeper"
)

// The oldest servers that have the features that the engine needs.
const (
	leastPostgres = 13
	leastMySQL    = 8
)

var leastMariaDB = [2]int{10, 6}

// errForeign: the table of versions belongs to another program.
var errForeign = errors.New("tables of another program")

// querier is a pool or one of its connections.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of the tables: 0 if they are incomplete, lockkeeper.ErrNoTables if
// there are none. It refuses a server that is too old, and tables that are too new.
func (db database) version(ctx context.Context, q querier) (version int, err error) {
	server := ""
	row := q.QueryRowContext(ctx, db.sql("SELECT coalesce(max(version), 0), "+db.serverVersion()+" FROM {migrations}"),
		db.unprepared()...)
	if err := row.Scan(&version, &server); err != nil {
		return 0, meaning(err)
	}
	if err := db.tooOld(server); err != nil {
		return 0, err
	}
	if version > schemas()[db.flavour].Latest {
		return 0, db.tooNew(version)
	}
	return version, nil
}

// unprepared returns the arguments of a query that has no parameters: an option by which the driver
// of Postgres does not prepare it. Behind a pooler the prepared statement might be on another
// connection.
func (n naming) unprepared() []any {
	if n.flavour == postgres {
		return []any{pgx.QueryExecModeExec}
	}
	return nil
}

// serverVersion is the expression for the server's version.
func (n naming) serverVersion() string {
	if n.flavour == postgres {
		return "current_setting('server_version')"
	}
	return "version()"
}

// checkServer refuses a server that is too old.
func (db database) checkServer(ctx context.Context, q querier) error {
	server := ""
	if err := q.QueryRowContext(ctx, "SELECT "+db.serverVersion(), db.unprepared()...).Scan(&server); err != nil {
		return err
	}
	return db.tooOld(server)
}

var firstNumbers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+)(?:\.(\d+))?`) })

// tooOld returns an error if a server of that version is too old. It accepts a version that it
// can't read.
func (n naming) tooOld(server string) error {
	match := firstNumbers().FindStringSubmatch(strings.TrimPrefix(server, "5.5.5-")) // as MariaDB once disguised itself
	if match == nil {
		return nil
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	switch {
	case n.flavour == postgres && major < leastPostgres:
		return lockkeeper.Invalid("the server is Postgres %s: lockkeeper needs %d or later", server, leastPostgres)
	case n.flavour == postgres:
	case strings.Contains(strings.ToLower(server), "mariadb"):
		if slices.Compare([]int{major, minor}, leastMariaDB[:]) < 0 {
			return lockkeeper.Invalid("the server is MariaDB %s: lockkeeper needs %d.%d or later", server, leastMariaDB[0],
				leastMariaDB[1])
		}
	case major < leastMySQL:
		return lockkeeper.Invalid("the server is MySQL %s: lockkeeper needs %d or later, or MariaDB %d.%d", server,
			leastMySQL, leastMariaDB[0], leastMariaDB[1])
	}
	return nil
}

// contents says which objects exist where the tables belong.
type contents struct {
	schema bool   // of Postgres: the schema exists
	ours   bool   // the table of versions exists
	others string // a table of another program; "" if there is none
}

// contents reads the catalogue of the database.
func (db database) contents(ctx context.Context, q querier) (contents, error) {
	var found contents
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
	if db.flavour == postgres {
		row := q.QueryRowContext(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = "+
			"'%s')", db.prefix), db.unprepared()...)
		if err := row.Scan(&found.schema); err != nil {
			return found, err
		}
		// Indexes and types belong to tables; sequences may be alone.
		query = fmt.Sprintf(`SELECT c.relname
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = '%s' AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY c.relname`, db.prefix)
	}
	rows, err := q.QueryContext(ctx, query, db.unprepared()...)
	if err != nil {
		return found, err
	}
	defer rows.Close()
	var own []string
	for _, o := range objectsOf(db.flavour) {
		own = append(own, o.name)
	}
	for rows.Next() {
		name := ""
		if err := rows.Scan(&name); err != nil {
			return found, err
		}
		// With a prefix, tables of other programs may stand beside these; in a schema they may not.
		known := name
		if db.flavour == mysql {
			known = strings.TrimPrefix(name, db.prefix)
			if known == name || !slices.Contains(own, known) {
				continue
			}
		}
		if known == versions.name {
			found.ours = true
		} else if found.others == "" {
			found.others = name
		}
	}
	return found, rows.Err()
}

// object is something that migrations create.
type object struct{ kind, name string }

// versions is the table of versions.
var versions = object{"TABLE", "migrations"}

var createPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?m)^CREATE (?:OR REPLACE )?(?:SQL SECURITY INVOKER )?(TABLE|VIEW|SEQUENCE) (?:IF NOT EXISTS )?\{(\w+)\}`)
})

// objectsOf returns all that the migrations of a flavour create.
func objectsOf(f flavour) []object {
	all := []object{versions}
	for _, match := range createPattern().FindAllStringSubmatch(schemas()[f].Text(), -1) {
		all = append(all, object{match[1], match[2]})
	}
	return all
}
