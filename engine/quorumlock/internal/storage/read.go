package storage

import (
	"context"
	"database/sql"
	"errors"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// content is all that a database has, after all checks.
type content struct {
	node     Identity
	progress progress
	snapshot snapshotRow
	state    replica.State
}

// read checks and reads the whole database. It changes nothing.
func read(ctx context.Context, db *dbfolder.DB) (*content, error) {
	fresh, err := db.Identify(schema)
	if err == nil && fresh {
		err = dbfolder.Damagef("it is empty")
	}
	if err == nil {
		err = db.Check(ctx)
	}
	if err == nil {
		err = db.CheckForm(schema)
	}
	if err != nil {
		return nil, err
	}
	return readContent(ctx, db)
}

// readContent reads the rows, and checks their sums.
func readContent(ctx context.Context, db *dbfolder.DB) (*content, error) {
	c := new(content)
	if err := c.readNode(db); err != nil {
		return nil, err
	}
	if err := c.readSnapshot(db); err != nil {
		return nil, err
	}
	if err := c.readProgress(db); err != nil {
		return nil, err
	}
	return c, c.readEntries(ctx, db)
}

func (c *content) readNode(db *dbfolder.DB) error {
	var id, stored int64
	err := db.Query("SELECT cluster, raft_id, name, random, sum FROM node", &c.node.Cluster, &id, &c.node.Name,
		&c.node.Random, &stored)
	if err != nil {
		return rowError("node", err)
	}
	c.node.ID = uint64(id)
	if own := c.node.sum(); own != sum(stored) {
		return dbfolder.Damagef("table node: its sum is %016x, by its contents it should be %016x", uint64(stored),
			uint64(own))
	}
	if err := c.node.check(); err != nil {
		return dbfolder.Damagef("table node: %v", err)
	}
	return nil
}

func (c *content) readSnapshot(db *dbfolder.DB) error {
	r := noSnapshot(c.node.sum())
	var index, term, chain, stored int64
	err := db.Query("SELECT idx, term, conf, data, chain, sum FROM snapshot", &index, &term, &r.conf, &r.data, &chain,
		&stored)
	if errors.Is(err, sql.ErrNoRows) {
		c.snapshot = r
		return nil
	}
	if err != nil {
		return rowError("snapshot", err)
	}
	r.index, r.term, r.chain, r.sum = uint64(index), uint64(term), sum(chain), sum(stored)
	if own := r.seal(c.node.sum()); own != r.sum {
		return dbfolder.Damagef("table snapshot: its sum is %016x, by its contents it should be %016x", uint64(r.sum),
			uint64(own))
	}
	c.snapshot = r
	c.state.Snapshot, err = r.snapshot()
	return err
}

func (c *content) readProgress(db *dbfolder.DB) error {
	p := &c.progress
	var n [9]int64
	err := db.Query(`SELECT state, writer, file, opened, commits, term, vote, "commit", last, chain, sum FROM progress`,
		&p.state, &p.writer, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8])
	if err != nil {
		return rowError("progress", err)
	}
	p.file, p.opened, p.commits = uint64(n[0]), uint64(n[1]), uint64(n[2])
	p.term, p.vote, p.commit, p.last, p.chain = uint64(n[3]), uint64(n[4]), uint64(n[5]), uint64(n[6]), sum(n[7])
	if own := p.sum(c.node.sum(), c.snapshot.sum); own != sum(n[8]) {
		return dbfolder.Damagef("table progress: its sum is %016x, by its contents and those of node and snapshot it should "+
			"be %016x", uint64(n[8]), uint64(own))
	}
	if p.state != stateOpen && p.state != stateClosed {
		return dbfolder.Damagef("table progress: state %q is neither open nor closed", p.state)
	}
	if p.term != 0 || p.vote != 0 || p.commit != 0 {
		c.state.HardState = &pb.HardState{Term: new(p.term), Vote: new(p.vote), Commit: new(p.commit)}
	}
	return nil
}

func (c *content) readEntries(ctx context.Context, db *dbfolder.DB) error {
	rows, err := db.Conn.QueryContext(ctx, "SELECT idx, term, type, data, sum FROM entries ORDER BY idx")
	if err != nil {
		return err
	}
	defer rows.Close()
	last, chain := c.snapshot.index, c.snapshot.chain
	for rows.Next() {
		var index, term, stored int64
		var r entryRow
		if err := rows.Scan(&index, &term, &r.kind, &r.data, &stored); err != nil {
			return dbfolder.Damagef("table entries, after entry %d: %v", last, err)
		}
		r.index, r.term, r.sum = uint64(index), uint64(term), sum(stored)
		e, err := r.entry(last, chain)
		if err != nil {
			return err
		}
		c.state.Entries = append(c.state.Entries, e)
		last, chain = r.index, r.sum
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if last != c.progress.last || chain != c.progress.chain {
		return dbfolder.Damagef("table entries: the last one is entry %d with sum %016x, it should be entry %d with sum "+
			"%016x", last, uint64(chain), c.progress.last, uint64(c.progress.chain))
	}
	return nil
}

// rowError returns the error of a table that must have one row.
func rowError(table string, err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return dbfolder.Damagef("table %s has no row", table)
	case dbfolder.FromSQLite(err) && !dbfolder.IsDamage(err):
		return err
	}
	return dbfolder.Damagef("table %s: %v", table, err)
}
