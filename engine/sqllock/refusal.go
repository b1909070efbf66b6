package sqllock

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkeeper/lockkeeper"
)

// code is the number or code of an error that the server returned; "" for other errors.
func code(err error) string {
	var pg *pgconn.PgError
	var my *mysqldriver.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code
	case errors.As(err, &my):
		return fmt.Sprint(my.Number)
	}
	return ""
}

// meaning finds out what an error says about the tables.
func meaning(err error) error {
	switch code(err) {
	case "42P01", "3F000", "1146": // no such table, or schema
		return fmt.Errorf("%w: %w", lockkeeper.ErrNoTables, err)
	case "42703", "42804", "42809", "1054": // no such column, or one of another kind
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return err
}

// refusal returns the error of opening with what to do about it.
func (db database) refusal(err error) error {
	var e *lockkeeper.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	refuse := func(sentinel error, format string, args ...any) error {
		return &lockkeeper.Error{Err: sentinel, Detail: fmt.Sprintf(format, args...), Cause: oneLine{err}}
	}
	if errors.Is(err, errForeign) {
		return db.occupied("migrations")
	}
	switch code(err) {
	case "28000":
		return refuse(lockkeeper.ErrDenied, "the database doesn't let this user in: it knows no such user, or not from here")
	case "28P01":
		return refuse(lockkeeper.ErrDenied, "the database doesn't let this user in; a password can be in PGPASSWORD or "+
			"~/.pgpass")
	case "1045", "1698":
		return refuse(lockkeeper.ErrDenied, "the database doesn't let this user in; a password can be in ~/.my.cnf or "+
			"MYSQL_PWD")
	case "1044":
		return refuse(lockkeeper.ErrDenied, "this user may not use that database, if there is one")
	case "42501", "1142", "1143":
		return refuse(lockkeeper.ErrDenied, "this user may not make or use the tables %s: have somebody who may run \"lk "+
			"migrate\"; \"lk migrate --print\" shows the rights that suffice to use them", db.place())
	case "3D000", "1049":
		return refuse(lockkeeper.ErrInvalid, "there is no such database: make it, or name another")
	case "42704", "08P01":
		return refuse(lockkeeper.ErrInvalid, "the server refuses a parameter of the URL; lockkeeper's own are schema, "+
			"migrate and pool")
	case "25006", "1290", "1792", "1836":
		return refuse(lockkeeper.ErrUnavailable, "this server can only be read: name the one that can be written to")
	case "55P03":
		return db.busy()
	}
	return refuse(lockkeeper.ErrUnavailable, "the database can't be used")
}

// oneLine is an error in one line. The driver of Postgres writes a line for each way that it has
// tried, with and without TLS: the answer of the server counts, or the reason why it could not be
// reached.
type oneLine struct{ error }

func (e oneLine) Error() string {
	var pg *pgconn.PgError
	var dial *net.OpError
	switch {
	case errors.As(e.error, &pg):
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	case errors.As(e.error, &dial):
		return dial.Error()
	}
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	if first := lines[0]; strings.HasSuffix(first, ":") && len(lines) > 1 {
		return first + " " + strings.Join(slices.Compact(lines[1:]), "; ")
	}
	return strings.Join(slices.Compact(lines), "; ")
}
func (e oneLine) Unwrap() error { return e.error }

// place says where the tables are.
func (n naming) place() string {
	if n.flavour == postgres {
		return "in schema " + n.prefix
	}
	return "with names " + n.prefix + "..."
}

// elsewhere says how to name other tables.
func (n naming) elsewhere() string {
	if n.flavour == postgres {
		return "schema=NAME"
	}
	return "prefix=NAME_"
}

// occupied refuses tables of another program.
func (n naming) occupied(table string) error {
	return lockkeeper.Invalid("the tables %s are another program's (such as %s): name others by %s", n.place(), table,
		n.elsewhere())
}

// tooNew refuses tables of a newer program.
func (n naming) tooNew(version int) error {
	return lockkeeper.Invalid("the tables %s have version %d, which a newer program made; this one knows version %d "+
		"and older: update this program and restart it, or name other tables by %s",
		n.place(), version, schemas()[n.flavour].Latest, n.elsewhere())
}

// busy says that another process migrates.
func (n naming) busy() error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
		Detail: fmt.Sprintf("another process has been bringing the tables %s up to date for more than %d s: try again",
			n.place(), migrationPatience)}
}
