-- What one node of a cluster has on its disk. All sums are CRC-64, as signed numbers.

CREATE TABLE node (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  cluster TEXT    NOT NULL,
  raft_id INTEGER NOT NULL,
  name    TEXT    NOT NULL,
  random  INTEGER NOT NULL,
  sum     INTEGER NOT NULL -- of the columns before
) STRICT;

-- Every transaction replaces this row.
CREATE TABLE progress (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  state   TEXT    NOT NULL, -- 'open' while a process has the folder, or died with it; else 'closed'
  writer  TEXT    NOT NULL, -- the version of Lockkeeper that opened it last
  file    INTEGER NOT NULL, -- of the inode and the birth of this file; 0 if the file system may not keep them
  opened  INTEGER NOT NULL, -- how often a process opened it
  commits INTEGER NOT NULL, -- how many transactions there were
  term    INTEGER NOT NULL, -- the hard state of Raft
  vote    INTEGER NOT NULL,
  "commit" INTEGER NOT NULL,
  last    INTEGER NOT NULL, -- the index of the last entry, or of the snapshot if there is none after it
  chain   INTEGER NOT NULL, -- the sum of that entry, or the chain of the snapshot
  sum     INTEGER NOT NULL  -- of the columns before, and the sums of the node and the snapshot
) STRICT;

CREATE TABLE snapshot (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  idx   INTEGER NOT NULL, -- of the last entry that it contains
  term  INTEGER NOT NULL,
  conf  BLOB    NOT NULL, -- the members of the cluster: raftpb.ConfState
  data  BLOB    NOT NULL, -- see package replica
  chain INTEGER NOT NULL, -- the sum of the last entry that it contains, or of idx and term if it was received
  sum   INTEGER NOT NULL  -- of the columns before
) STRICT;

-- The entries after the snapshot, without gaps.
CREATE TABLE entries (
  idx  INTEGER PRIMARY KEY,
  term INTEGER NOT NULL,
  type INTEGER NOT NULL, -- raftpb.EntryType
  data BLOB    NOT NULL, -- see package replica
  sum  INTEGER NOT NULL  -- of the sum before, and the columns before
) STRICT;
