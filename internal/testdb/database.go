package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// makeBound is for making or dropping a database.
const makeBound = 30 * time.Second

// Database makes a new empty database for one test, and returns its URL. It is dropped
// when the test ends, if the server runs then, also while clients are connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.URL(s.newDatabase(t))
}

// newDatabase makes a database, and returns its name.
func (s *Server) newDatabase(t testing.TB) string {
	t.Helper()
	at := s
	if s.behind != nil {
		at = s.behind
	}
	at.mu.Lock()
	at.made++
	name := fmt.Sprintf("test_%d", at.made)
	at.mu.Unlock()
	if err := at.exec(fmt.Sprintf(at.program.create, name)); err != nil {
		t.Fatalf("%s: make a database: %v", at, err)
	}
	t.Cleanup(func() {
		if !at.answers() {
			return
		}
		if err := at.exec(fmt.Sprintf(at.program.drop, name)); err != nil {
			t.Logf("%s: database %s stays: %v", at, name, err)
		}
	})
	return name
}

func (s *Server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil && !s.frozen
}

// exec runs one statement on a connection of its own.
func (s *Server) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), makeBound)
	defer cancel()
	if s.program == postgres {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement)
		return err
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = userName, "tcp", s.Addr()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
