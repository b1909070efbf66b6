// Package migrations brings the tables of a database up to date: a folder of SQL files, each
// applied once, in the order of the numbers that their names begin with. The engine says how to
// keep other processes out and where the version is stored.
//
//	Lock ── Version ──> apply each newer file, Record its number ──> Unlock(done)
//
// Lock excludes every other process until Unlock. If the process dies in between, the database is
// as before where DDL is transactional (Postgres, SQLite); elsewhere (MariaDB, MySQL) the next
// process repeats the file that was interrupted, so its statements must be repeatable.
package migrations

import (
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// Schema is a folder of migrations. Its files are named like 00001_locks.sql.
type Schema struct {
	Files  fs.FS
	Latest int // the number of the latest migration: the version of tables that are up to date
}

// New returns the schema in the folder dir of files. It panics if there is no such folder, since
// schemas are embedded in the program.
func New(files fs.FS, dir string) Schema {
	folder, err := fs.Sub(files, dir)
	if err != nil {
		panic(err)
	}
	s := Schema{Files: folder}
	for _, name := range s.names() {
		s.Latest = max(s.Latest, number(name))
	}
	return s
}

// names returns the names of the files, in the order of their numbers.
func (s Schema) names() []string {
	names, _ := fs.Glob(s.Files, "*.sql") // the pattern is valid
	return names
}

// number is the number that the name of a migration begins with.
func number(name string) int {
	digits, _, _ := strings.Cut(name, "_")
	n, _ := strconv.Atoi(digits)
	return n
}

// Text returns the SQL of all migrations, in their order.
func (s Schema) Text() string { return s.Script(func(int) string { return "" }) }

// Script returns the SQL of all migrations for a person to run by hand; record is the statement
// that stores a version.
func (s Schema) Script(record func(version int) string) string {
	var b strings.Builder
	for _, name := range s.names() {
		text, _ := fs.ReadFile(s.Files, name) // it is embedded
		fmt.Fprintf(&b, "\n%s\n", text)
		b.WriteString(record(number(name)))
	}
	return b.String()
}

// Filled returns s with every text passed through fill.
func (s Schema) Filled(fill func(text string) string) Schema {
	return Schema{Files: filled{s.Files, fill}, Latest: s.Latest}
}

type filled struct {
	fs.FS
	fill func(string) string
}

// Open implements fs.FS.
func (f filled) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.IsDir() {
		return file, err
	}
	text, err := io.ReadAll(file)
	return filledFile{file, strings.NewReader(f.fill(string(text)))}, err
}

// filledFile is read from its beginning to its end.
type filledFile struct {
	fs.File
	text *strings.Reader
}

func (f filledFile) Read(p []byte) (int, error) { return f.text.Read(p) }
