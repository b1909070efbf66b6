package sqllock

import (
	"fmt"
	"strings"
)

// Migration returns what [Migrate] does to a database without tables of lockkeeper, as SQL for an
// administrator to read or run. Comments at its end grant the rights of a role that only uses the
// locks. It does not connect to the database.
func Migration(url string) (string, error) {
	s, err := parse(url)
	if err != nil {
		return "", err
	}
	return s.script(), nil
}

// script returns the text of Migration.
func (n naming) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- The tables of lockkeeper %s.\n\n", n.place())
	if n.flavour == postgres {
		b.WriteString("BEGIN;\n\nCREATE SCHEMA IF NOT EXISTS " + quote(n.prefix, `"`) + ";\n\n")
	}
	fmt.Fprintf(&b, "%s;\n", n.sql(versionsTables[n.flavour]))
	schema := schemas()[n.flavour].Script(func(version int) string { return recordVersion(version) + ";\n" })
	b.WriteString(n.sql(schema))
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

// grants returns the rights of a role that only uses the locks.
func (n naming) grants() []string {
	var tables, others []string // those that it writes to, and reads
	var all []string
	if n.flavour == postgres {
		all = append(all, "GRANT USAGE ON SCHEMA "+quote(n.prefix, `"`)+" TO ROLE")
	}
	for _, o := range objectsOf(n.flavour) {
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
