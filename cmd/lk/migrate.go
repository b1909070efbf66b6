package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

func (a *app) newMigrate() *cobra.Command {
	var script bool
	cmd := &cobra.Command{
		Use:        "migrate [URL]",
		SuggestFor: []string{"upgrade", "init", "schema", "setup"},
		Short:      "Create or upgrade the tables in a database",
		Long: `Create the tables of lockkeeper in a database, or upgrade them. The database is that of URL,
else of --engine or LOCKKEEPER_URL.

Opening the engine does the same if the role may create tables. lk migrate is for roles
that may not, and for URLs with migrate=off: run it as the owner of the database before the
programs that use the locks. It may run several times, and concurrently.

With --print, lk connects to nothing. It prints the SQL that creates the tables, and as
comments the rights of a role that uses the locks.

A password need not be in the URL: PGPASSWORD, ~/.pgpass and service files work for
Postgres, ~/.my.cnf and MYSQL_PWD for MariaDB and MySQL.`,
		Example: `  # as the owner of the database, before the programs start
  lk migrate postgres://owner@db.example.com/app

  # print the SQL, and the rights that programs need
  lk migrate --print postgres:///app

  # in another schema, or with another prefix
  lk migrate 'postgres:///app?schema=my_locks'
  lk migrate 'mysql://owner@db.example.com/app?prefix=my_locks_'`,
		Args: a.checked(func(_ *cobra.Command, args []string) { a.checkMigrate(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.migrate(cmd.Context(), script) }),
	}
	cmd.Flags().BoolVar(&script, "print", false, "print the SQL, and change nothing")
	return cmd
}

// checkMigrate collects the problems of the chosen database.
func (a *app) checkMigrate(args []string) {
	a.takeEngine(args, "database")
	url, named, err := a.chooseURL()
	switch {
	case err != nil: // checkEngine reports it
	case !named:
		a.bad.addf("no database: name one, as in lk migrate postgres://owner@HOST/DATABASE, or by --engine or %s",
			engineVariable)
	case !hasTables(url):
		a.bad.addf("%s is %s: only databases are migrated by hand, such as postgres://HOST/DATABASE or mysql://HOST/DATABASE",
			a.engineSource(), lockkeeper.RedactURL(url))
	}
}

func (a *app) migrate(ctx context.Context, script bool) error {
	url, _, err := a.chooseURL()
	if err != nil {
		return err
	}
	if script {
		text, err := schemeOf(url).Migration(url)
		if err == nil {
			_, err = fmt.Fprint(a.stdout, text)
		}
		return err
	}
	if err := schemeOf(url).Migrate(ctx, url); err != nil {
		return fmt.Errorf("%s: %w", a.engineSource(), err)
	}
	fmt.Fprintf(a.stderr, "lk: the tables in %s are up to date\n", lockkeeper.RedactURL(url))
	return nil
}
