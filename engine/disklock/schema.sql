-- The journal of a lock server: what happened, one row for each batch that was
-- made safe at once, since the newest snapshot. See docs/engines/disk.md.

CREATE TABLE meta (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  state TEXT NOT NULL -- 'open' while a process has the directory, or died with it; else 'closed'
) STRICT;

-- All columns are covered by sum, which begins with the sum of the row before.
CREATE TABLE journal (
  seq     INTEGER PRIMARY KEY, -- without gaps
  count   INTEGER NOT NULL,    -- of entries
  entries TEXT    NOT NULL,    -- a JSON array of commands
  now_ns  INTEGER NOT NULL,    -- the engine's time after them
  fences  INTEGER NOT NULL,    -- the last one given
  tickets INTEGER NOT NULL,    -- the last one drawn
  epochs  INTEGER NOT NULL,    -- the last one given
  changes INTEGER NOT NULL,    -- the last change of a claim
  sum     TEXT    NOT NULL     -- CRC-64
) STRICT;

-- A snapshot is complete when its row is here. It stands for all rows of the
-- journal up to seq; chain is the sum of that row.
CREATE TABLE snapshots (
  number  INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL,
  chain   TEXT    NOT NULL,
  records INTEGER NOT NULL,
  claims  INTEGER NOT NULL,
  now_ns  INTEGER NOT NULL,
  fences  INTEGER NOT NULL,
  tickets INTEGER NOT NULL,
  epochs  INTEGER NOT NULL,
  changes INTEGER NOT NULL,
  digest  TEXT    NOT NULL, -- CRC-64 of all its records, in their order
  sum     TEXT    NOT NULL  -- CRC-64 of the columns before
) STRICT;

CREATE TABLE records (
  number   INTEGER NOT NULL, -- of the snapshot
  position INTEGER NOT NULL,
  kind     TEXT    NOT NULL, -- session, claim, freeze, pace
  record   TEXT    NOT NULL, -- JSON
  PRIMARY KEY (number, position)
) STRICT, WITHOUT ROWID;

-- One row for each command of the journal, for people.
CREATE VIEW commands AS
SELECT seq, key + 1 AS entry, value ->> 'at_ns' AS at_ns, value ->> 'op' AS op,
  coalesce(value ->> 'by', value ->> '$.session.id') AS session,
  coalesce(value ->> '$.want.id', value ->> '$.end.id') AS claim,
  value ->> '$.want.targets' AS targets, value AS command
FROM journal, json_each(journal.entries);
