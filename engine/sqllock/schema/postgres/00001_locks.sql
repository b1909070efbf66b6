-- The locks of lockkeeper. Read them with
--
--     SELECT * FROM {held};
--     SELECT * FROM {waiting};
--
-- and change nothing by hand that "lk revoke" and "lk freeze" can change.
--
-- Columns that end in _ns are nanoseconds. Instants count from 1970 on the database's
-- clock; NULL means without end. Names in braces get the schema's name before them.
-- Paths and sessions are compared byte by byte.

-- A transaction that writes a session or its claims locks the session's row and increments its version.
CREATE TABLE {sessions} (
    id          text COLLATE "C" PRIMARY KEY,
    state       text   NOT NULL CHECK (state IN ('open', 'closed')),
    who         text   NOT NULL,
    note        text   NOT NULL,
    link        text   NOT NULL,
    ttl_ns      bigint NOT NULL,
    deadline_ns bigint,          -- it ends then unless renewed; if closed: when it ended
    promise_ns  bigint,          -- the latest end of the lease that was promised to its client
    epoch       bigint NOT NULL,
    last_lease  bigint NOT NULL, -- number of the latest lease sent to its client
    acked       bigint NOT NULL, -- number of the latest lease that its client has acknowledged
    lowest_open bigint NOT NULL, -- low-water mark: its client starts no claim with a lower id
    process     text   NOT NULL, -- the process that attached it: its wakeups go there
    attempt     text   NOT NULL, -- the call that attached it
    version     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX sessions_by_deadline ON {sessions} (state, deadline_ns);

CREATE TABLE {claims} (
    session        text COLLATE "C" NOT NULL,
    id             bigint  NOT NULL,
    state          text    NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets        text    NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, ...]; permits have slot and units
    who            text    NOT NULL,
    note           text    NOT NULL,
    link           text    NOT NULL,
    priority       bigint  NOT NULL,
    ticket         bigint  NOT NULL, -- order in the queue among equal priorities: the lowest first
    fence          bigint  NOT NULL, -- 0 until granted
    reason         text    NOT NULL, -- why it ended
    arrived_ns     bigint  NOT NULL,
    granted_ns     bigint  NOT NULL,
    wait_ns        bigint,           -- how long it waits at most
    bound_ns       bigint,           -- when its wait ends
    notified_ns    bigint,           -- the end of the hold of which the holder was notified
    ended_ns       bigint  NOT NULL,
    forget_ns      bigint  NOT NULL, -- an ended claim is removed after this and after unacked_ns
    unacked_ns     bigint  NOT NULL, -- the holder may believe until then that it holds; 0: it acknowledged the end
    change_no      bigint  NOT NULL,
    changed_ns     bigint  NOT NULL,
    more           text    NOT NULL, -- rare attributes, as JSON; '' if there are none
    inside_session text COLLATE "C", -- the claim whose hold it is nested in; NULL if none
    inside_id      bigint,
    PRIMARY KEY (session, id)
);

CREATE INDEX claims_by_end ON {claims} (ended_ns) WHERE state = 'ended';
CREATE INDEX claims_inside ON {claims} (inside_session, inside_id) WHERE inside_session IS NOT NULL;

-- One row for each target of a claim that is held or waits, or that ended without its holder
-- having acknowledged the end; in the order of the queue.
CREATE TABLE {targets} (
    path    text COLLATE "C" NOT NULL,
    -- class: 0 held, 1 held and converting, 2 waiting, 3 waiting with a soft writer policy,
    -- 4 ended without acknowledgement
    class   smallint NOT NULL,
    rank    integer  NOT NULL, -- the negative of its priority: the lowest goes first
    ticket  bigint   NOT NULL,
    session text COLLATE "C" NOT NULL,
    id      bigint   NOT NULL,
    mode    smallint NOT NULL, -- 1 exclusive, 2 shared, 3 permits
    PRIMARY KEY (path, class, rank, ticket, session, id)
);

CREATE TABLE {freezes} (
    path     text COLLATE "C" PRIMARY KEY,
    session  text   NOT NULL,
    claim    bigint NOT NULL,
    who      text   NOT NULL,
    note     text   NOT NULL,
    link     text   NOT NULL,
    since_ns bigint NOT NULL,
    until_ns bigint NOT NULL
);

-- A running estimate of how long holds of a path last. It only serves to estimate waits, so
-- small changes are written rarely.
CREATE TABLE {hold_times} (
    path        text COLLATE "C" PRIMARY KEY,
    estimate_ns bigint NOT NULL,
    at_ns       bigint NOT NULL -- when the latest hold ended
);

-- Claims that another process has changed: the process reads them again and removes the rows.
CREATE TABLE {wakeups} (
    process text   NOT NULL,
    n       bigint GENERATED ALWAYS AS IDENTITY,
    session text   NOT NULL,
    id      bigint NOT NULL,
    sent_ns bigint NOT NULL,
    PRIMARY KEY (process, n)
);

-- Processes that watch all changes. While there is one, the row of an ended claim stays for a
-- minute, so that watchers see its reason.
CREATE TABLE {watchers} (
    process  text COLLATE "C" PRIMARY KEY,
    until_ns bigint NOT NULL -- the process extends this while it watches
);

-- Rising numbers: each transaction draws 1024 of them for tickets, fences and epochs.
CREATE SEQUENCE {sequences} INCREMENT BY 1024 MINVALUE 1024 CACHE 1;

-- One row for each target that is held.
CREATE VIEW {held} AS
SELECT t.path, (ARRAY['exclusive', 'shared', 'permits'])[t.mode] AS mode,
       (SELECT (e ->> 'units')::int FROM json_array_elements(c.targets::json) e
        WHERE t.mode = 3 AND e ->> 'path' = t.path) AS units,
       c.who, c.note, c.session, c.id AS claim, c.fence,
       round((extract(epoch FROM clock_timestamp()) - c.granted_ns / 1e9)::numeric, 1) AS seconds,
       to_timestamp(s.deadline_ns / 1e9) AS lives_until
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (0, 1) AND s.state = 'open'
  AND coalesce(s.deadline_ns / 1e9 > extract(epoch FROM clock_timestamp()), true)
ORDER BY t.path, c.fence;

-- One row for each target that a claim waits for, roughly in the order of the queue.
CREATE VIEW {waiting} AS
SELECT t.path, (ARRAY['exclusive', 'shared', 'permits'])[t.mode] AS mode,
       (SELECT (e ->> 'units')::int FROM json_array_elements(c.targets::json) e
        WHERE t.mode = 3 AND e ->> 'path' = t.path) AS units,
       c.who, c.note, c.session, c.id AS claim, c.priority, c.ticket,
       round((extract(epoch FROM clock_timestamp()) - c.arrived_ns / 1e9)::numeric, 1) AS seconds
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (1, 2, 3) AND s.state = 'open'
  AND coalesce(s.deadline_ns / 1e9 > extract(epoch FROM clock_timestamp()), true)
ORDER BY t.path, t.class, t.rank, t.ticket;
