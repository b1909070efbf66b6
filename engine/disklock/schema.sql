-- The journal of a lock server: a snapshot of its table, and every command since then, one row
-- for each batch that one sync made safe. "lk dump disk:DIR" prints it. See docs/engines/disk.md.

CREATE TABLE meta (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  state  TEXT NOT NULL, -- 'open' while a process has the directory, or died with it; else 'closed'
  writer TEXT NOT NULL, -- the version of Lockkeeper that opened it last
  moved  TEXT NOT NULL  -- who has the locks now, for good; '' while this directory has them
) STRICT;

-- All columns are covered by sum, which begins with the sum of the row before.
CREATE TABLE journal (
  seq     INTEGER PRIMARY KEY, -- without gaps
  count   INTEGER NOT NULL,    -- of entries
  entries BLOB    NOT NULL,    -- versions, and one entry after the other, see internal/record
  now_ns  INTEGER NOT NULL,    -- the engine's time after them
  fences  INTEGER NOT NULL,    -- the last one given
  tickets INTEGER NOT NULL,    -- the last one drawn
  epochs  INTEGER NOT NULL,    -- the last one given
  changes INTEGER NOT NULL,    -- the last change of a claim
  sum     TEXT    NOT NULL     -- CRC-64 of the sum before, the other columns (8 bytes each) and entries
) STRICT;

-- A snapshot is complete when its row is here. It stands for all rows of the
-- journal up to seq; chain is the sum of that row.
CREATE TABLE snapshots (
  number  INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL,
  chain   TEXT    NOT NULL,
  claims  INTEGER NOT NULL,
  header  BLOB    NOT NULL, -- versions, counters and number of records, see internal/record
  digest  TEXT    NOT NULL, -- CRC-64 of all its records, in their order
  sum     TEXT    NOT NULL  -- CRC-64 of the columns before
) STRICT;

CREATE TABLE records (
  number   INTEGER NOT NULL, -- of the snapshot
  position INTEGER NOT NULL,
  record   BLOB    NOT NULL, -- a session, claim, freeze or hold time, see internal/record
  PRIMARY KEY (number, position)
) STRICT, WITHOUT ROWID;
