package disklock

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

//go:embed schema.sql
var statements string

// crcTable returns the table for the sums of rows, headers and records. The first call makes it.
func crcTable() *crc64.Table { return crc64.MakeTable(crc64.ECMA) }

const (
	applicationID = 0x6c6b6a6e // "lkjn"
	schemaVersion = 3

	// A commit of some dozens of entries writes half as many pages of 8 kB as of 4 kB, each by two
	// system calls, and no more bytes.
	pageSize = 8192
)

var schema = dbfolder.NewSchema(applicationID, schemaVersion, pageSize, statements)

// store is one connection to the database. One goroutine at a time uses it.
type store struct {
	*dbfolder.DB
	insertRow    *sql.Stmt
	insertRecord *sql.Stmt
}

// openStore connects to the file, and creates it if it does not exist.
func openStore(path string, use dbfolder.Use) (*store, error) {
	db, err := dbfolder.OpenDB(path, use)
	if err != nil {
		return nil, err
	}
	return &store{DB: db}, nil
}

// create creates the tables of an empty file in one transaction.
func (s *store) create() error {
	if err := s.BeginCreate(schema); err != nil {
		return err
	}
	empty := header{head: record.AppendHeader(nil, &table.Snapshot{})}
	if err := s.Exec("INSERT INTO meta VALUES (1, ?, ?, '')", stateOpen, dbfolder.Writer()); err != nil {
		return err
	}
	if err := s.complete(&empty); err != nil {
		return err
	}
	return s.Exec("COMMIT")
}

// prepare prepares the frequent statements.
func (s *store) prepare() (err error) {
	if s.insertRow, err = s.Conn.PrepareContext(context.Background(),
		"INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"); err != nil {
		return err
	}
	s.insertRecord, err = s.Conn.PrepareContext(context.Background(), "INSERT INTO records VALUES (?, ?, ?)")
	return err
}

func (s *store) close() error {
	for _, stmt := range []*sql.Stmt{s.insertRow, s.insertRecord} {
		if stmt != nil {
			stmt.Close()
		}
	}
	return s.Close()
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
	return crc64.Update(crc64.Checksum(b[:], crcTable()), crcTable(), r.entries)
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
	return crc64.Checksum(b, crcTable())
}

// complete writes the header, which completes the snapshot.
func (s *store) complete(h *header) error {
	return s.Exec("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?)", int64(h.number), int64(h.seq), hex(h.chain),
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
	err = s.Query("SELECT number, seq, chain, claims, header, digest, sum FROM snapshots ORDER BY number DESC LIMIT 1",
		&h.number, &h.seq, &chain, &h.claims, &h.head, &digest, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return h, dbfolder.Damagef("table snapshots has no row, it must have one at least")
	}
	if err != nil {
		return h, err
	}
	h.chain, _ = unhex(chain)
	h.digest, _ = unhex(digest)
	if own := hex(h.sum()); own != sum {
		return h, dbfolder.Damagef("table snapshots, number %d: its sum is %s, by its contents it should be %s", h.number,
			sum, own)
	}
	return h, nil
}
