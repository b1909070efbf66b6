-- The locks of lockkeeper. Read them with
--
--     SELECT * FROM {held};
--     SELECT * FROM {waiting};
--
-- and change nothing by hand that "lk revoke" and "lk freeze" can change.
--
-- What ends in _ns is nanoseconds: an instant counts from 1970 on the database's
-- clock, and NULL is without end. Names in braces get the prefix before them. Paths and
-- sessions are compared byte by byte, so they are binary; the views show them as text.
--
-- Each statement commits by itself, and all are done again after one that was cut short:
-- what is there already must do no harm.

-- +goose Up

-- Whoever writes anything of a session has its row locked, and counts its version up.
CREATE TABLE IF NOT EXISTS {sessions} (
    id          VARBINARY(128) PRIMARY KEY,
    state       VARCHAR(16)    NOT NULL CHECK (state IN ('open', 'closed')),
    who         VARCHAR(128)   NOT NULL,
    note        VARCHAR(512)   NOT NULL,
    link        VARCHAR(512)   NOT NULL,
    ttl_ns      BIGINT         NOT NULL,
    deadline_ns BIGINT,                  -- it ends then, unless it is renewed; of a closed one: when it ended
    promise_ns  BIGINT,                  -- until when it was told that it lives
    epoch       BIGINT         NOT NULL,
    leases      BIGINT         NOT NULL, -- the number of the latest that it was given
    heard       BIGINT         NOT NULL, -- the latest that it is known to have heard
    answered    BIGINT         NOT NULL, -- it begins no claim with a lower id any more
    process     VARBINARY(128) NOT NULL, -- whom to wake: the process that attached it
    attempt     VARBINARY(128) NOT NULL, -- which call attached it
    version     BIGINT         NOT NULL,
    KEY sessions_by_deadline (state, deadline_ns)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {claims} (
    session        VARBINARY(128) NOT NULL,
    id             BIGINT       NOT NULL,
    state          VARCHAR(16)  NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets        MEDIUMTEXT   NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, ...], with slot and units for permits
    who            VARCHAR(128) NOT NULL,
    note           VARCHAR(512) NOT NULL,
    link           VARCHAR(512) NOT NULL,
    priority       BIGINT       NOT NULL,
    ticket         BIGINT       NOT NULL, -- place in line: of one priority the lowest goes first
    fence          BIGINT       NOT NULL, -- 0 until granted
    reason         VARCHAR(64)  NOT NULL, -- why it ended
    arrived_ns     BIGINT       NOT NULL,
    granted_ns     BIGINT       NOT NULL,
    wait_ns        BIGINT,                -- for how long it would wait
    bound_ns       BIGINT,                -- when it gives up
    told_ns        BIGINT,                -- the end of the hold that the holder was told
    ended_ns       BIGINT       NOT NULL,
    forget_ns      BIGINT       NOT NULL, -- an ended one is removed some time after this, and after ghost_ns
    ghost_ns       BIGINT       NOT NULL, -- until when the holder may not know of its end
    change_no      BIGINT       NOT NULL,
    changed_ns     BIGINT       NOT NULL,
    more           MEDIUMTEXT   NOT NULL, -- what few claims have, as JSON; '' if there is nothing
    inside_session VARBINARY(128),        -- the claim in whose hold it is made; NULL if in none
    inside_id      BIGINT,
    PRIMARY KEY (session, id),
    KEY claims_by_end (state, ended_ns),
    KEY claims_inside (inside_session, inside_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- One row for each target of a claim that is held or waits, or of which its holder may
-- not know that it has ended; in the order of the line.
CREATE TABLE IF NOT EXISTS {targets} (
    path    VARBINARY(512) NOT NULL,
    class   SMALLINT       NOT NULL, -- 0 held, 1 held and to be converted, 2 waits, 3 waits with manners, 4 ended unheard
    `rank`  INT            NOT NULL, -- of those that wait: the lowest goes first, the negative of its priority
    ticket  BIGINT         NOT NULL,
    session VARBINARY(128) NOT NULL,
    id      BIGINT         NOT NULL,
    mode    SMALLINT       NOT NULL, -- 1 exclusive, 2 shared, 3 permits
    PRIMARY KEY (path, class, `rank`, ticket, session, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {freezes} (
    path     VARBINARY(512) PRIMARY KEY,
    session  VARBINARY(128) NOT NULL,
    claim    BIGINT         NOT NULL,
    who      VARCHAR(128)   NOT NULL,
    note     VARCHAR(512)   NOT NULL,
    link     VARCHAR(512)   NOT NULL,
    since_ns BIGINT         NOT NULL,
    until_ns BIGINT         NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- How long holds of a path lately lasted, for estimates of waits; nothing else
-- depends on it. What changed little is written only now and then.
CREATE TABLE IF NOT EXISTS {paces} (
    path    VARBINARY(512) PRIMARY KEY,
    pace_ns BIGINT         NOT NULL,
    at_ns   BIGINT         NOT NULL -- when a hold of it ended
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Claims that a process should look at, since another one has changed them.
CREATE TABLE IF NOT EXISTS {bells} (
    n       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    process VARBINARY(128) NOT NULL,
    session VARBINARY(128) NOT NULL,
    id      BIGINT         NOT NULL,
    rung_ns BIGINT         NOT NULL,
    KEY bells_by_process (process, n)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Processes in which somebody follows what happens. While there is one, what ends leaves its
-- row for a minute, so that they see how it ended.
CREATE TABLE IF NOT EXISTS {followers} (
    process  VARBINARY(128) NOT NULL PRIMARY KEY,
    until_ns BIGINT         NOT NULL -- it moves this on as long as it follows
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Numbers that only rise: each row that is inserted is 1024 of them, for tickets,
-- fences and epochs.
CREATE TABLE IF NOT EXISTS {numbers} (
    n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB;

-- Rows to lock in place of paths: that of the root, and one for all paths of one number.
CREATE TABLE IF NOT EXISTS {latches} (
    n INT PRIMARY KEY
) ENGINE=InnoDB;

INSERT IGNORE INTO {latches} (n)
WITH digits (d) AS (
    SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL
    SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
)
SELECT a.d * 512 + b.d * 64 + c.d * 8 + e.d
FROM digits a CROSS JOIN digits b CROSS JOIN digits c CROSS JOIN digits e
UNION ALL SELECT 4096;

-- One row for each target that is held.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {held} AS
SELECT CONVERT(t.path USING utf8mb4) COLLATE utf8mb4_bin AS path, ELT(t.mode, 'exclusive', 'shared', 'permits') AS mode,
       (SELECT j.units FROM JSON_TABLE(c.targets, '$[*]' COLUMNS (path VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.path', units INT PATH '$.units')) j
        WHERE t.mode = 3 AND CAST(j.path AS BINARY) = t.path) AS units, c.who, c.note,
       CONVERT(c.session USING utf8mb4) COLLATE utf8mb4_bin AS session, c.id AS claim, c.fence,
       ROUND((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - c.granted_ns DIV 1000) / 1000000, 1) AS seconds,
       FROM_UNIXTIME(s.deadline_ns DIV 1000000000) AS lives_until
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (0, 1) AND s.state = 'open'
  AND COALESCE(s.deadline_ns DIV 1000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TRUE)
ORDER BY t.path, c.fence;

-- One row for each target that is waited for, about in the order of the line.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {waiting} AS
SELECT CONVERT(t.path USING utf8mb4) COLLATE utf8mb4_bin AS path, ELT(t.mode, 'exclusive', 'shared', 'permits') AS mode,
       (SELECT j.units FROM JSON_TABLE(c.targets, '$[*]' COLUMNS (path VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.path', units INT PATH '$.units')) j
        WHERE t.mode = 3 AND CAST(j.path AS BINARY) = t.path) AS units, c.who, c.note,
       CONVERT(c.session USING utf8mb4) COLLATE utf8mb4_bin AS session, c.id AS claim, c.priority, c.ticket,
       ROUND((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - c.arrived_ns DIV 1000) / 1000000, 1) AS seconds
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (1, 2, 3) AND s.state = 'open'
  AND COALESCE(s.deadline_ns DIV 1000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TRUE)
ORDER BY t.path, t.class, t.`rank`, t.ticket;
