-- The locks of lockkeeper. Read them with
--
--     SELECT * FROM {held};
--     SELECT * FROM {waiting};
--
-- and change nothing by hand that "lk revoke" and "lk freeze" can change.
--
-- What ends in _ns is nanoseconds: an instant counts from 1970 on the database's
-- clock, and NULL is without end. Names in braces get the schema's name before them.
-- Paths and sessions are compared byte by byte.

-- +goose Up

-- Whoever writes anything of a session has its row locked, and counts its version up.
CREATE TABLE {sessions} (
    id          text COLLATE "C" PRIMARY KEY,
    state       text   NOT NULL CHECK (state IN ('open', 'closed')),
    who         text   NOT NULL,
    note        text   NOT NULL,
    link        text   NOT NULL,
    ttl_ns      bigint NOT NULL,
    deadline_ns bigint,          -- it ends then, unless it is renewed; of a closed one: when it ended
    promise_ns  bigint,          -- until when it was told that it lives
    epoch       bigint NOT NULL,
    leases      bigint NOT NULL, -- the number of the latest that it was given
    heard       bigint NOT NULL, -- the latest that it is known to have heard
    answered    bigint NOT NULL, -- it begins no claim with a lower id any more
    process     text   NOT NULL, -- whom to wake: the process that attached it
    attempt     text   NOT NULL, -- which call attached it
    version     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX sessions_by_deadline ON {sessions} (state, deadline_ns);

CREATE TABLE {claims} (
    session        text COLLATE "C" NOT NULL,
    id             bigint  NOT NULL,
    state          text    NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets        text    NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, ...], with slot and units for permits
    who            text    NOT NULL,
    note           text    NOT NULL,
    link           text    NOT NULL,
    priority       bigint  NOT NULL,
    ticket         bigint  NOT NULL, -- place in line: of one priority the lowest goes first
    fence          bigint  NOT NULL, -- 0 until granted
    reason         text    NOT NULL, -- why it ended
    arrived_ns     bigint  NOT NULL,
    granted_ns     bigint  NOT NULL,
    wait_ns        bigint,           -- for how long it would wait
    bound_ns       bigint,           -- when it gives up
    told_ns        bigint,           -- the end of the hold that the holder was told
    ended_ns       bigint  NOT NULL,
    forget_ns      bigint  NOT NULL, -- an ended one is removed some time after this, and after ghost_ns
    ghost_ns       bigint  NOT NULL, -- until when the holder may not know of its end
    change_no      bigint  NOT NULL,
    changed_ns     bigint  NOT NULL,
    more           text    NOT NULL, -- what few claims have, as JSON; '' if there is nothing
    inside_session text COLLATE "C", -- the claim in whose hold it is made; NULL if in none
    inside_id      bigint,
    PRIMARY KEY (session, id)
);

CREATE INDEX claims_by_end ON {claims} (ended_ns) WHERE state = 'ended';
CREATE INDEX claims_inside ON {claims} (inside_session, inside_id) WHERE inside_session IS NOT NULL;

-- One row for each target of a claim that is held or waits, or of which its holder may
-- not know that it has ended; in the order of the line.
CREATE TABLE {targets} (
    path    text COLLATE "C" NOT NULL,
    class   smallint NOT NULL, -- 0 held, 1 held and to be converted, 2 waits, 3 waits with manners, 4 ended unheard
    rank    integer  NOT NULL, -- of those that wait: the lowest goes first, the negative of its priority
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

-- How long holds of a path lately lasted, for estimates of waits; nothing else
-- depends on it. What changed little is written only now and then.
CREATE TABLE {paces} (
    path    text COLLATE "C" PRIMARY KEY,
    pace_ns bigint NOT NULL,
    at_ns   bigint NOT NULL -- when a hold of it ended
);

-- Claims that a process should look at, since another one has changed them.
CREATE TABLE {bells} (
    process text   NOT NULL,
    n       bigint GENERATED ALWAYS AS IDENTITY,
    session text   NOT NULL,
    id      bigint NOT NULL,
    rung_ns bigint NOT NULL,
    PRIMARY KEY (process, n)
);

-- Processes in which somebody follows what happens. While there is one, what ends leaves its
-- row for a minute, so that they see how it ended.
CREATE TABLE {followers} (
    process  text COLLATE "C" PRIMARY KEY,
    until_ns bigint NOT NULL -- it moves this on as long as it follows
);

-- Numbers that only rise: each transaction takes 1024 of them for tickets, fences and epochs.
CREATE SEQUENCE {numbers} INCREMENT BY 1024 MINVALUE 1024 CACHE 1;

-- One row for each target that is held.
CREATE VIEW {held} AS
SELECT t.path, (ARRAY['exclusive', 'shared', 'permits'])[t.mode] AS mode,
       (SELECT (e ->> 'units')::int FROM json_array_elements(c.targets::json) e WHERE t.mode = 3 AND e ->> 'path' = t.path) AS units, c.who, c.note, c.session, c.id AS claim, c.fence,
       round((extract(epoch FROM clock_timestamp()) - c.granted_ns / 1e9)::numeric, 1) AS seconds,
       to_timestamp(s.deadline_ns / 1e9) AS lives_until
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (0, 1) AND s.state = 'open' AND coalesce(s.deadline_ns / 1e9 > extract(epoch FROM clock_timestamp()), true)
ORDER BY t.path, c.fence;

-- One row for each target that is waited for, about in the order of the line.
CREATE VIEW {waiting} AS
SELECT t.path, (ARRAY['exclusive', 'shared', 'permits'])[t.mode] AS mode,
       (SELECT (e ->> 'units')::int FROM json_array_elements(c.targets::json) e WHERE t.mode = 3 AND e ->> 'path' = t.path) AS units, c.who, c.note, c.session, c.id AS claim, c.priority, c.ticket,
       round((extract(epoch FROM clock_timestamp()) - c.arrived_ns / 1e9)::numeric, 1) AS seconds
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (1, 2, 3) AND s.state = 'open' AND coalesce(s.deadline_ns / 1e9 > extract(epoch FROM clock_timestamp()), true)
ORDER BY t.path, t.class, t.rank, t.ticket;
