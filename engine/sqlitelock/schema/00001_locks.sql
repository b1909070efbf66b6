-- The locks of lockkeeper, in one file. Read them with
--
--     sqlite3 locks.db 'SELECT * FROM held'
--     sqlite3 locks.db 'SELECT * FROM waiting'
--
-- and change nothing by hand: every process keeps a copy of these rows and only
-- reads those whose version is new.
--
-- Times that end in _ns are nanoseconds. Instants count from when the file was
-- made, on the computer's boot clock; while the computer is off the count
-- stands still. NULL is without end.
--
-- Migrations are applied by goose, each once, all of them and what tells of them
-- in one transaction: see migrate.go, which also sets user_version and
-- meta.layout to the number of the latest. A statement ends with the line that
-- ends in a semicolon.

-- +goose Up
PRAGMA application_id = 0x6c6f636b; -- "lock"

CREATE TABLE meta (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    layout   INTEGER NOT NULL, -- the migration that made these tables: who knows another one stops at once
    version  INTEGER NOT NULL, -- of the latest change; each changed row carries that of its change
    purged   INTEGER NOT NULL, -- rows up to this version may have been removed
    purge_ns INTEGER NOT NULL, -- when rows were last removed
    boot_id  TEXT    NOT NULL, -- the boot of the computer for which base_ns is true
    base_ns  INTEGER NOT NULL, -- what the boot clock read at instant 0
    now_ns   INTEGER NOT NULL, -- instant of the latest change
    fences   INTEGER NOT NULL, -- the last that was given, as of the next three
    tickets  INTEGER NOT NULL,
    epochs   INTEGER NOT NULL,
    changes  INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    id          TEXT    NOT NULL PRIMARY KEY,
    state       TEXT    NOT NULL CHECK (state IN ('open', 'resuming', 'closed')),
    who         TEXT    NOT NULL,
    note        TEXT    NOT NULL,
    link        TEXT    NOT NULL,
    ttl_ns      INTEGER NOT NULL,
    deadline_ns INTEGER,          -- it ends then, unless it is renewed
    promise_ns  INTEGER,          -- until when it was told that it lives
    epoch       INTEGER NOT NULL,
    leases      INTEGER NOT NULL, -- the number of the latest that it was given
    heard       INTEGER NOT NULL, -- the latest that it is known to have heard
    answered    INTEGER NOT NULL, -- it begins no claim with a lower id any more
    file        TEXT    NOT NULL, -- its file in the folder of session files; '' if it has no process
    opened      INTEGER NOT NULL, -- the version in which it began
    closed_ns   INTEGER NOT NULL, -- of a closed one
    version     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_version ON sessions (version);

CREATE TABLE claims (
    session    TEXT    NOT NULL,
    id         INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets    TEXT    NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, …], with slot and units for permits
    who        TEXT    NOT NULL,
    note       TEXT    NOT NULL,
    link       TEXT    NOT NULL,
    priority   INTEGER NOT NULL,
    ticket     INTEGER NOT NULL, -- place in line: of one priority the lowest goes first
    fence      INTEGER NOT NULL, -- 0 until granted
    reason     TEXT    NOT NULL, -- why it ended
    arrived_ns INTEGER NOT NULL,
    granted_ns INTEGER NOT NULL,
    wait_ns    INTEGER,          -- for how long it would wait
    bound_ns   INTEGER,          -- when it gives up
    told_ns    INTEGER,          -- the end of the hold that the holder was told
    ended_ns   INTEGER NOT NULL,
    forget_ns  INTEGER NOT NULL, -- an ended one is removed some time after this, and after ghost_ns
    ghost_ns   INTEGER NOT NULL, -- until when the holder may not know of its end
    change_no  INTEGER NOT NULL, -- of its latest change, as followers are told it
    changed_ns INTEGER NOT NULL,
    more       TEXT    NOT NULL, -- what few claims have, as JSON; '' if there is nothing
    version    INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX claims_by_version ON claims (version);

CREATE TABLE freezes (
    path     TEXT    NOT NULL PRIMARY KEY,
    state    TEXT    NOT NULL CHECK (state IN ('frozen', 'thawed')),
    session  TEXT    NOT NULL,
    claim    INTEGER NOT NULL,
    who      TEXT    NOT NULL,
    note     TEXT    NOT NULL,
    link     TEXT    NOT NULL,
    since_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL, -- of a thawed one
    version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX freezes_by_version ON freezes (version);

-- How long holds of a path lately lasted, for estimates of waits; nothing else
-- depends on it. What changed little is written only now and then.
CREATE TABLE paces (
    path    TEXT    NOT NULL PRIMARY KEY,
    pace_ns INTEGER NOT NULL,
    at_ns   INTEGER NOT NULL, -- when a hold of it ended
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX paces_by_version ON paces (version);

-- One row for each target that is held. The seconds are as of the latest change.
CREATE VIEW held AS
SELECT target.value ->> 'path' AS path,
       target.value ->> 'mode' AS mode,
       target.value ->> 'units' AS units,
       claims.who, claims.note, claims.session, claims.id AS claim, claims.fence,
       round((meta.now_ns - claims.granted_ns) / 1e9, 1) AS seconds
FROM claims, meta, json_each(claims.targets) AS target
WHERE claims.state IN ('held', 'converting')
ORDER BY path, claims.fence;

-- One row for each target that is waited for, about in the order of the line.
CREATE VIEW waiting AS
SELECT target.value ->> 'path' AS path,
       target.value ->> 'mode' AS mode,
       target.value ->> 'units' AS units,
       claims.who, claims.note, claims.session, claims.id AS claim, claims.priority, claims.ticket,
       round((meta.now_ns - claims.arrived_ns) / 1e9, 1) AS seconds
FROM claims, meta, json_each(claims.targets) AS target
WHERE claims.state IN ('waiting', 'converting')
ORDER BY path, claims.priority DESC, claims.ticket;
