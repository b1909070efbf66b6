package sqllock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
)

// The optional abilities of the engine.
var (
	_ lockkeeper.Examiner        = (*Engine)(nil)
	_ lockkeeper.CommitReporter  = (*Engine)(nil)
	_ lockkeeper.RepeatReporter  = (*Engine)(nil)
	_ lockkeeper.OverdueReporter = (*Engine)(nil)
)

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:   []string{"postgres", "postgresql"},
		Form:    "postgres://HOST/DATABASE",
		Example: "postgres://app@db.example.com/app",
		About:   "tables in a Postgres",
		Help: "locks in tables of a database that is there already: Postgres 13 or later. After ? and between & can " +
			"follow schema=NAME for other tables, migrate=off, pool=N, and what psql takes. No password is needed in " +
			"it: see lk help migrate",
		Page:          "docs/engines/database.md",
		Guarantees:    postgres.guarantees(),
		Existing:      "migrate=off",
		FileParameter: namesFile,
		Misspelt:      []string{"pg", "pgsql", "pgx", "postgress", "postgre"},
		Check:         Check,
		Open:          openURL,
		Migrate:       Migrate,
		Migration:     Migration,
	})
	lockkeeper.Register(lockkeeper.Scheme{
		Names:   []string{"mysql", "mariadb"},
		Form:    "mysql://HOST/DATABASE",
		Example: "mysql://app@db.example.com/app",
		About:   "tables in a MariaDB or MySQL",
		Help: "locks in tables of a database that is there already: MariaDB 10.6 or later (MySQL 8 should do, and is " +
			"untested). After ? and between & can " +
			"follow prefix=NAME_ for other tables, migrate=off, pool=N, tls=true and ca=FILE",
		Page:          "docs/engines/database.md",
		Guarantees:    mysql.guarantees(),
		Existing:      "migrate=off",
		FileParameter: namesFile,
		Misspelt:      []string{"maria", "mysqls"},
		Check:         Check,
		Open:          openURL,
		Migrate:       Migrate,
		Migration:     Migration,
	})
}

func openURL(ctx context.Context, url string) (lockkeeper.Engine, error) {
	e, err := Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// namesFile reports whether a parameter of a URL names a file.
func namesFile(name, value string) bool {
	switch name {
	case "ca", "cert", "key", "sslcert", "sslkey", "passfile", "servicefile":
		return true
	case "sslrootcert":
		return value != "system"
	}
	return false
}
