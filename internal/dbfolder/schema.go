package dbfolder

import (
	"database/sql"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// A Schema is the tables of a kind of database, and how SQLite knows the kind. It does not change.
type Schema struct {
	application int // SQLite's application_id
	version     int // SQLite's user_version
	pageSize    int // bytes
	statements  string
	form        func() (string, error) // the result of formQuery in a new database
}

// NewSchema returns the schema that the statements create.
func NewSchema(application, version, pageSize int, statements string) *Schema {
	s := &Schema{application: application, version: version, pageSize: pageSize, statements: statements}
	s.form = sync.OnceValues(s.newForm)
	return s
}

// formQuery selects the whole schema of the database.
const formQuery = `SELECT coalesce(group_concat(type || ' ' || name || ' ' ||
	tbl_name || ' ' || coalesce(sql, ''), ';'), '')
	FROM (SELECT * FROM sqlite_schema ORDER BY type, name)`

func (s *Schema) newForm() (text string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(s.statements); err != nil {
		return "", err
	}
	err = db.QueryRow(formQuery).Scan(&text)
	return text, err
}

// Identify checks that the file is a database of this kind and version. It reports whether the file
// is empty.
func (db *DB) Identify(s *Schema) (fresh bool, err error) {
	var application, version, tables int
	err = db.Query("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM "+
		"pragma_application_id, pragma_user_version", &application, &version, &tables)
	switch {
	case err != nil:
		return false, err
	case application == 0 && version == 0 && tables == 0:
		return true, nil
	case application != s.application:
		return false, lockkeeper.Invalid("%s is the SQLite database of another program (application id %#x): name a "+
			"directory that is new, or one of lockkeeper's", db.Path, application)
	case version != s.version:
		return false, lockkeeper.Invalid("%s has version %d, this program knows version %d: use the program that made it",
			db.Path, version, s.version)
	}
	return false, nil
}

// BeginCreate switches an empty file to a write-ahead log, and creates the tables in a transaction,
// which the caller commits.
func (db *DB) BeginCreate(s *Schema) error {
	if err := db.Exec(fmt.Sprintf("PRAGMA page_size = %d", s.pageSize)); err != nil {
		return err
	}
	var mode string
	if err := db.Query("PRAGMA journal_mode = WAL", &mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode %s): use a local one", mode)
	}
	return db.Exec(fmt.Sprintf("BEGIN IMMEDIATE; PRAGMA application_id = %d; PRAGMA user_version = %d;", s.application,
		s.version) + s.statements)
}

// CheckForm refuses a database whose tables differ from those of a new one.
func (db *DB) CheckForm(s *Schema) error {
	want, err := s.form()
	if err != nil {
		return err
	}
	var got string
	if err := db.Query(formQuery, &got); err != nil {
		return Damagef("sqlite_schema: %v", err)
	}
	if got != want {
		return Damagef("the tables are not as they were made:\n%s\nshould be\n%s", got, want)
	}
	return nil
}
