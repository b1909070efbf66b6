package sqllock

import (
	"database/sql"
	"strings"
	"sync/atomic"
)

// flavour is a kind of database.
type flavour int

const (
	postgres flavour = iota + 1
	mysql            // MariaDB or MySQL
)

func (f flavour) String() string {
	if f == postgres {
		return "postgres"
	}
	return "mysql"
}

// naming is what comes before the names of the tables: a schema of Postgres, or a prefix in MariaDB
// and MySQL.
type naming struct {
	flavour flavour
	prefix  string
}

// sql fills in the names in braces.
func (n naming) sql(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 64)
	for {
		before, remaining, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		table, after, _ := strings.Cut(remaining, "}")
		b.WriteString(n.name(table))
		text = after
	}
}

// name returns the quoted name of a table.
func (n naming) name(table string) string {
	if n.flavour == postgres {
		return quote(n.prefix, `"`) + "." + quote(table, `"`)
	}
	return quote(n.prefix+table, "`")
}

func quote(name, with string) string {
	return with + strings.ReplaceAll(name, with, with+with) + with
}

// database is where the rows are. It is safe for concurrent use.
type database struct {
	naming
	pool *sql.DB
	owns bool // the pool is closed with the engine

	// plainly: no statements are prepared on new connections. Nil if the pool belongs to the
	// program, which decides that.
	plainly *atomic.Bool
}
