package sqllock

import (
	"os"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) {
	// The tests must not read the password files of the user who runs them.
	for _, variable := range []string{"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGOPTIONS", "MYSQL_PWD"} {
		os.Unsetenv(variable)
	}
	os.Setenv("HOME", "/nonexistent")
	roles.Play(map[string]func(args []string) error{"obey": playObey})
	os.Exit(testdb.Run(m))
}
