package sqlitelock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"sync/atomic"
)

// A fault is what happens at a statement instead of it, or after it. It may
// return an error, with which the statement then ends, or never return.
type fault func(before bool, statement string) error

var faultDrivers atomic.Int64

// registerFaults makes a driver that asks f before and after each statement, and
// returns its name.
func registerFaults(f fault) string { return registerOpening(func() {}, f) }

// registerOpening is registerFaults for a driver that calls opening before each
// connection.
func registerOpening(opening func(), f fault) string {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	name := fmt.Sprintf("sqlite with faults %d", faultDrivers.Add(1))
	sql.Register(name, faultDriver{pool.Driver(), opening, f})
	return name
}

type faultDriver struct {
	driver.Driver
	opening func()
	fault   fault
}

func (d faultDriver) Open(name string) (driver.Conn, error) {
	d.opening()
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return faultConn{c, d.fault}, nil
}

type faultConn struct {
	driver.Conn
	fault fault
}

// around does a statement between its faults.
func around[T any](f fault, statement string, do func() (T, error)) (T, error) {
	var none T
	if err := f(true, statement); err != nil {
		return none, err
	}
	v, err := do()
	if err != nil {
		return none, err
	}
	if err := f(false, statement); err != nil {
		if c, ok := any(v).(io.Closer); ok {
			c.Close() // rows
		}
		return none, err
	}
	return v, nil
}

func (c faultConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return around(c.fault, query, func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	})
}

func (c faultConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return around(c.fault, query, func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	})
}

func (c faultConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return faultStmt{s, query, c.fault}, err
}

func (c faultConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c faultConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

type faultStmt struct {
	driver.Stmt
	query string
	fault fault
}

func (s faultStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return around(s.fault, s.query, func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s faultStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(s.fault, s.query, func() (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	})
}
