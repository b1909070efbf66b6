package disklock

import (
	"database/sql"
	"sync"
)

// formQuery selects the whole schema of the database.
const formQuery = `SELECT coalesce(group_concat(type || ' ' || name || ' ' ||
	tbl_name || ' ' || coalesce(sql, ''), ';'), '')
	FROM (SELECT * FROM sqlite_schema ORDER BY type, name)`

// form is the result of formQuery in a database that this program creates.
var form = sync.OnceValues(func() (text string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		return "", err
	}
	err = db.QueryRow(formQuery).Scan(&text)
	return text, err
})

// checkForm refuses a database whose schema differs from that of a new one.
func (s *store) checkForm() error {
	want, err := form()
	if err != nil {
		return err
	}
	var got string
	if err := s.query(formQuery, &got); err != nil {
		return damagef("sqlite_schema: %v", err)
	}
	if got != want {
		return damagef("the tables are not as they were made:\n%s\nshould be\n%s", got, want)
	}
	return nil
}
