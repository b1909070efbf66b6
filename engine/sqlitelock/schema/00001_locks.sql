-- The locks of lockkeeper, in one file. Read them with
--
--     sqlite3 locks.db 'SELECT * FROM held'
--     sqlite3 locks.db 'SELECT * FROM waiting'
--
-- and change nothing by hand: every process has a copy of these rows and only reads rows
-- with a newer version.
--
-- Columns that end in _ns are nanoseconds. Instants count from the creation of the file, on
-- the computer's boot clock; the count stops while the computer is off. NULL means without end.
--
-- Apply applies all migrations and records their numbers in one transaction (see migrate.go),
-- which sets user_version and meta.layout to the number of the latest. A statement ends with
-- the line that ends in a semicolon.

PRAGMA application_id = 0x6c6f636b; -- "lock"

CREATE TABLE meta (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    layout   INTEGER NOT NULL, -- number of the latest migration: a program that knows another number stops at once
    version  INTEGER NOT NULL, -- of the latest change; each row has the version of its latest change
    purged   INTEGER NOT NULL, -- rows up to this version may have been removed
    purge_ns INTEGER NOT NULL, -- when rows were last removed
    boot_id  TEXT    NOT NULL, -- the boot of the computer that base_ns belongs to
    base_ns  INTEGER NOT NULL, -- reading of the boot clock at instant 0
    now_ns   INTEGER NOT NULL, -- instant of the latest change
    fences   INTEGER NOT NULL, -- the last number given out; likewise the next three
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
    deadline_ns INTEGER,          -- it ends then unless renewed
    promise_ns  INTEGER,          -- the latest end of the lease that was promised to its client
    epoch       INTEGER NOT NULL,
    last_lease  INTEGER NOT NULL, -- number of the latest lease sent to its client
    acked       INTEGER NOT NULL, -- number of the latest lease that its client has acknowledged
    lowest_open INTEGER NOT NULL, -- low-water mark: its client starts no claim with a lower id
    file        TEXT    NOT NULL, -- its file in the folder of session files; '' if it is bound to no process
    opened      INTEGER NOT NULL, -- the version that began it
    closed_ns   INTEGER NOT NULL, -- if closed: when
    version     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_version ON sessions (version);

CREATE TABLE claims (
    session     TEXT    NOT NULL,
    id          INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets     TEXT    NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, …]; permits have slot and units
    who         TEXT    NOT NULL,
    note        TEXT    NOT NULL,
    link        TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    ticket      INTEGER NOT NULL, -- order in the queue among equal priorities: the lowest first
    fence       INTEGER NOT NULL, -- 0 until granted
    reason      TEXT    NOT NULL, -- why it ended
    arrived_ns  INTEGER NOT NULL,
    granted_ns  INTEGER NOT NULL,
    wait_ns     INTEGER,          -- how long it waits at most
    bound_ns    INTEGER,          -- when its wait ends
    notified_ns INTEGER,          -- the end of the hold of which the holder was notified
    ended_ns    INTEGER NOT NULL,
    forget_ns   INTEGER NOT NULL, -- an ended claim is removed after this and after unacked_ns
    unacked_ns  INTEGER NOT NULL, -- the holder may believe until then that it holds; 0: it acknowledged the end
    change_no   INTEGER NOT NULL, -- number of its latest change, for watchers
    changed_ns  INTEGER NOT NULL, -- if ended: when the end was written
    more        TEXT    NOT NULL, -- rare attributes, as JSON; '' if there are none
    version     INTEGER NOT NULL,
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
    ended_ns INTEGER NOT NULL, -- if thawed: when
    version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX freezes_by_version ON freezes (version);

-- A running estimate of how long holds of a path last. It only serves to estimate waits, so
-- small changes are written rarely.
CREATE TABLE hold_times (
    path        TEXT    NOT NULL PRIMARY KEY,
    estimate_ns INTEGER NOT NULL,
    at_ns       INTEGER NOT NULL, -- when the latest hold ended
    version     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX hold_times_by_version ON hold_times (version);

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

-- One row for each target that a claim waits for, roughly in the order of the queue.
CREATE VIEW waiting AS
SELECT target.value ->> 'path' AS path,
       target.value ->> 'mode' AS mode,
       target.value ->> 'units' AS units,
       claims.who, claims.note, claims.session, claims.id AS claim, claims.priority, claims.ticket,
       round((meta.now_ns - claims.arrived_ns) / 1e9, 1) AS seconds
FROM claims, meta, json_each(claims.targets) AS target
WHERE claims.state IN ('waiting', 'converting')
ORDER BY path, claims.priority DESC, claims.ticket;
