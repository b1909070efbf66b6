// Package testdb gives tests databases of their own: PostgreSQL, MariaDB, Redis, and
// PgBouncer before PostgreSQL, each a private instance on a port of the loopback
// interface, with its data in a temporary folder. They can be killed, frozen and
// started again, and Proxy cuts a connection at an exact message.
//
// SharedPostgres, SharedMariaDB and SharedRedis are the usual choice: one instance for a
// test binary, whose TestMain calls Run, and a new database for each test (of Redis, keys
// with another prefix):
//
//	func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }
//
//	url := testdb.SharedPostgres(t).Database(t)
//
// A test that stops, kills or freezes a server starts its own, by Postgres or
// MariaDB; that costs one to two seconds. A Redis costs 20 milliseconds.
//
// The servers are those of the system's packages, which "make tools" installs. Where
// one is missing a test fails and says so. The services of the system and their data
// are not touched. Servers run on Linux alone; elsewhere such tests are skipped.
//
// Started by root, a server runs as the user nobody, since PostgreSQL refuses to run
// as root. It dies with the process that started it, however that ends; only what
// Run or the test's end would have removed is left in the temporary folder then.
package testdb
