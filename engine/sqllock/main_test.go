package sqllock

import (
	"os"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) {
	// Nothing is taken from where the person who runs the tests has passwords.
	for _, variable := range []string{"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGOPTIONS", "MYSQL_PWD"} {
		os.Unsetenv(variable)
	}
	os.Setenv("HOME", "/nonexistent")
	roles.Play(map[string]func(args []string) error{"obey": playObey})
	os.Exit(testdb.Run(m))
}
