package disklock

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

//go:embed schema.sql
var schema string

const (
	applicationID = 0x6c6b6a6e // "lkjn"
	schemaVersion = 2

	// A commit of some dozens of entries writes half as many pages of 8 kB as of 4 kB, each by two
	// system calls, and no more bytes.
	pageSize = 8192
)

// store is one connection to the database. One goroutine at a time uses it.
type store struct {
	path         string
	driver       string
	pool         *sql.DB
	conn         *sql.Conn
	insertRow    *sql.Stmt
	insertRecord *sql.Stmt
}

// openStore connects to the file, and creates it if it does not exist. If alone is set, SQLite
// locks the database against all other processes, including readers. path may end with a question
// mark and parameters of SQLite.
func openStore(path, driver string, alone, careless bool) (*store, error) {
	path, parameters, _ := strings.Cut(path, "?")
	s := &store{path: path, driver: driver}
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: parameters}
	pool, err := sql.Open(driver, address.String())
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	s.pool = pool
	if s.conn, err = pool.Conn(context.Background()); err != nil {
		pool.Close()
		return nil, err
	}
	if err := s.set(alone, careless); err != nil {
		s.closeUnchanged()
		return nil, err
	}
	return s, nil
}

// closeUnchanged closes a refused database without changing it. SQLite checkpoints the log when the
// last connection closes, so a read-only connection must close last. It opens the file only when it
// reads, so it reads the version, which needs no schema. If it can't read the version, s could not
// have checkpointed the log either.
func (s *store) closeUnchanged() {
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(s.path), RawQuery: "mode=ro"}
	if reader, err := sql.Open(s.driver, address.String()); err == nil {
		defer reader.Close()
		reader.SetMaxOpenConns(1)
		var version int
		_ = reader.QueryRow("PRAGMA user_version").Scan(&version)
	}
	s.close()
}

// set configures the connection. SQLite keeps the log when the connection closes, so a missing log
// means that somebody removed it.
func (s *store) set(alone, careless bool) error {
	err := s.conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
	pragmas := []string{"busy_timeout = 0", "wal_autocheckpoint = 0", "synchronous = FULL", "cell_size_check = ON"}
	if alone {
		pragmas = append(pragmas, "locking_mode = EXCLUSIVE")
	}
	if careless {
		pragmas = append(pragmas, "synchronous = OFF")
	}
	for _, pragma := range pragmas {
		if err == nil {
			err = s.exec("PRAGMA " + pragma)
		}
	}
	return err
}

func (s *store) exec(statement string, args ...any) error {
	_, err := s.conn.ExecContext(context.Background(), statement, args...)
	return err
}

// query reads one row.
func (s *store) query(statement string, to ...any) error {
	return s.conn.QueryRowContext(context.Background(), statement).Scan(to...)
}

// create switches an empty file to a write-ahead log, and creates the tables in one transaction.
func (s *store) create() error {
	if err := s.exec(fmt.Sprintf("PRAGMA page_size = %d", pageSize)); err != nil {
		return err
	}
	var mode string
	if err := s.query("PRAGMA journal_mode = WAL", &mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode %s): use a local one", mode)
	}
	empty := header{head: record.AppendHeader(nil, &table.Snapshot{})}
	begin := fmt.Sprintf("BEGIN IMMEDIATE; PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID,
		schemaVersion)
	if err := s.exec(begin + schema); err != nil {
		return err
	}
	if err := s.exec("INSERT INTO meta VALUES (1, ?, ?)", stateOpen, writer()); err != nil {
		return err
	}
	if err := s.complete(&empty); err != nil {
		return err
	}
	return s.exec("COMMIT")
}

// prepare prepares the frequent statements.
func (s *store) prepare() (err error) {
	if s.insertRow, err = s.conn.PrepareContext(context.Background(),
		"INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"); err != nil {
		return err
	}
	s.insertRecord, err = s.conn.PrepareContext(context.Background(), "INSERT INTO records VALUES (?, ?, ?)")
	return err
}

func (s *store) close() error {
	for _, stmt := range []*sql.Stmt{s.insertRow, s.insertRecord} {
		if stmt != nil {
			stmt.Close()
		}
	}
	if s.conn != nil {
		s.conn.Close()
	}
	return s.pool.Close()
}

// checkpoint moves the log into the database and syncs the database. If truncate is set, the log is
// empty afterwards.
func (s *store) checkpoint(truncate bool) error {
	how := "PASSIVE"
	if truncate {
		how = "TRUNCATE"
	}
	var busy, log, moved int
	if err := s.query("PRAGMA wal_checkpoint("+how+")", &busy, &log, &moved); err != nil {
		return err
	}
	if busy != 0 || log != moved {
		return fmt.Errorf("only %d of %d pages of the log could be moved into %s: another program reads it", moved, log,
			s.path)
	}
	return nil
}

// A row is one batch of the journal.
type row struct {
	seq     uint64
	count   int
	entries []byte
	after   table.Counters
	sum     uint64
}

// seal returns the row's sum, which includes chain, the sum of the previous row.
func (r *row) seal(chain uint64) uint64 {
	a := &r.after
	var b [8 * 8]byte
	for i, n := range [...]uint64{chain, r.seq, uint64(r.count), uint64(a.Now), a.Fences, a.Tickets, a.Epochs, a.Changes} {
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	return crc64.Update(crc64.Checksum(b[:], crcTable), crcTable, r.entries)
}

func (s *store) append(r *row) error {
	a := &r.after
	_, err := s.insertRow.ExecContext(context.Background(), int64(r.seq), r.count, r.entries,
		int64(a.Now), int64(a.Fences), int64(a.Tickets), int64(a.Epochs), int64(a.Changes), hex(r.sum))
	return err
}

// A header is a complete snapshot, apart from its records.
type header struct {
	number uint64
	seq    uint64 // the last row that the snapshot contains
	chain  uint64 // the sum of that row
	claims int
	head   []byte // versions, counters and number of records, see record.Header
	digest uint64 // digest of the records
}

func (h *header) sum() uint64 {
	b := fmt.Appendf(nil, "%d %d %016x %d %x %016x", h.number, h.seq, h.chain, h.claims, h.head, h.digest)
	return crc64.Checksum(b, crcTable)
}

// complete writes the header, which completes the snapshot.
func (s *store) complete(h *header) error {
	return s.exec("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?)", int64(h.number), int64(h.seq), hex(h.chain),
		h.claims, h.head, hex(h.digest), hex(h.sum()))
}

func hex(n uint64) string { return fmt.Sprintf("%016x", n) }

func unhex(s string) (uint64, error) {
	if len(s) != 16 {
		return 0, errors.New("a sum has 16 digits")
	}
	return strconv.ParseUint(s, 16, 64)
}

// scanCounters returns the destinations to scan the counters of a row into c.
func scanCounters(c *table.Counters) []any {
	return []any{(*int64)(&c.Now), &c.Fences, &c.Tickets, &c.Epochs, &c.Changes}
}

// latest returns the header of the newest complete snapshot.
func (s *store) latest() (h header, err error) {
	var chain, digest, sum string
	err = s.query("SELECT number, seq, chain, claims, header, digest, sum FROM snapshots ORDER BY number DESC LIMIT 1",
		&h.number, &h.seq, &chain, &h.claims, &h.head, &digest, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return h, damagef("table snapshots has no row, it must have one at least")
	}
	if err != nil {
		return h, err
	}
	h.chain, _ = unhex(chain)
	h.digest, _ = unhex(digest)
	if own := hex(h.sum()); own != sum {
		return h, damagef("table snapshots, number %d: its sum is %s, by its contents it should be %s", h.number, sum, own)
	}
	return h, nil
}

// resultCode returns the primary result code of an error of SQLite; 0 for other errors.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isFull reports whether err says that the disk is full.
func isFull(err error) bool { return resultCode(err) == sqlite3.SQLITE_FULL }
