package sqllock

import (
	"fmt"
	"io/fs"
	"strings"
)

// Migration is what [Migrate] does to a database that has no tables of lockkeeper yet,
// as SQL for who would rather read it first, or may not do it himself. Comments
// at its end grant what a role needs that only uses the locks. Nothing is connected to.
func Migration(url string) (string, error) {
	s, err := parse(url)
	if err != nil {
		return "", err
	}
	return s.script(), nil
}

// script is the text of Migration.
func (n naming) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- The tables of lockkeeper %s.\n\n", n.place())
	if n.flavour == postgres {
		b.WriteString("BEGIN;\n\nCREATE SCHEMA IF NOT EXISTS " + quote(n.prefix, `"`) + ";\n\n")
	}
	fmt.Fprintf(&b, "%s;\n", n.sql(versionsTables[n.flavour]))
	s := schemas[n.flavour]
	for i, name := range s.names() {
		text, _ := fs.ReadFile(s.files, name) // it is embedded
		fmt.Fprintf(&b, "\n%s\n", strings.ReplaceAll(n.sql(string(text)), "-- +goose Up\n\n", ""))
		fmt.Fprintf(&b, "%s;\n", n.sql(fmt.Sprintf("INSERT INTO {migrations} (version) VALUES (%d)", i+1)))
	}
	if n.flavour == postgres {
		b.WriteString("\nCOMMIT;\n")
	}
	b.WriteString("\n-- A role that only uses the locks needs these rights and no others. Put its name in\n-- place of " +
		"ROLE.\n--\n")
	for _, grant := range n.grants() {
		fmt.Fprintf(&b, "-- %s;\n", grant)
	}
	return b.String()
}

// grants are the rights of a role that only uses the locks.
func (n naming) grants() []string {
	var tables, others []string // those that it writes to, and reads
	var all []string
	if n.flavour == postgres {
		all = append(all, "GRANT USAGE ON SCHEMA "+quote(n.prefix, `"`)+" TO ROLE")
	}
	for _, o := range schemas[n.flavour].objects() {
		switch {
		case o.kind == "SEQUENCE":
			all = append(all, "GRANT USAGE ON SEQUENCE "+n.name(o.name)+" TO ROLE")
		case o.kind == "VIEW" || o == versions:
			others = append(others, n.name(o.name))
		default:
			tables = append(tables, n.name(o.name))
		}
	}
	if n.flavour == postgres { // where one GRANT may name several
		tables, others = []string{strings.Join(tables, ", ")}, []string{strings.Join(others, ", ")}
	}
	for _, t := range tables {
		all = append(all, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+t+" TO ROLE")
	}
	for _, t := range others {
		all = append(all, "GRANT SELECT ON "+t+" TO ROLE")
	}
	return all
}
