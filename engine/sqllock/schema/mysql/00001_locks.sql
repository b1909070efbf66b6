-- The locks of lockkeeper. Read them with
--
--     SELECT * FROM {held};
--     SELECT * FROM {waiting};
--
-- and change nothing by hand that "lk revoke" and "lk freeze" can change.
--
-- Columns that end in _ns are nanoseconds. Instants count from 1970 on the database's
-- clock; NULL means without end. Names in braces get the prefix before them. Paths and
-- sessions are compared byte by byte, so they are binary; the views show them as text.
--
-- Each statement commits by itself, and a migration that was interrupted is repeated from its
-- start: every statement must succeed when its result is already there.

-- A transaction that writes a session or its claims locks the session's row and increments its version.
CREATE TABLE IF NOT EXISTS {sessions} (
    id          VARBINARY(128) PRIMARY KEY,
    state       VARCHAR(16)    NOT NULL CHECK (state IN ('open', 'closed')),
    who         VARCHAR(128)   NOT NULL,
    note        VARCHAR(512)   NOT NULL,
    link        VARCHAR(512)   NOT NULL,
    ttl_ns      BIGINT         NOT NULL,
    deadline_ns BIGINT,                  -- it ends then unless renewed; if closed: when it ended
    promise_ns  BIGINT,                  -- the latest end of the lease that was promised to its client
    epoch       BIGINT         NOT NULL,
    last_lease  BIGINT         NOT NULL, -- number of the latest lease sent to its client
    acked       BIGINT         NOT NULL, -- number of the latest lease that its client has acknowledged
    lowest_open BIGINT         NOT NULL, -- low-water mark: its client starts no claim with a lower id
    process     VARBINARY(128) NOT NULL, -- the process that attached it: its wakeups go there
    attempt     VARBINARY(128) NOT NULL, -- the call that attached it
    version     BIGINT         NOT NULL,
    KEY sessions_by_deadline (state, deadline_ns)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {claims} (
    session        VARBINARY(128) NOT NULL,
    id             BIGINT       NOT NULL,
    state          VARCHAR(16)  NOT NULL CHECK (state IN ('waiting', 'held', 'converting', 'ended')),
    targets        MEDIUMTEXT   NOT NULL, -- [{"path": "a/b", "mode": "exclusive"}, ...]; permits have slot and units
    who            VARCHAR(128) NOT NULL,
    note           VARCHAR(512) NOT NULL,
    link           VARCHAR(512) NOT NULL,
    priority       BIGINT       NOT NULL,
    ticket         BIGINT       NOT NULL, -- order in the queue among equal priorities: the lowest first
    fence          BIGINT       NOT NULL, -- 0 until granted
    reason         VARCHAR(64)  NOT NULL, -- why it ended
    arrived_ns     BIGINT       NOT NULL,
    granted_ns     BIGINT       NOT NULL,
    wait_ns        BIGINT,                -- how long it waits at most
    bound_ns       BIGINT,                -- when its wait ends
    notified_ns    BIGINT,                -- the end of the hold of which the holder was notified
    ended_ns       BIGINT       NOT NULL,
    forget_ns      BIGINT       NOT NULL, -- an ended claim is removed after this and after unacked_ns
    unacked_ns     BIGINT       NOT NULL, -- the holder may believe until then that it holds; 0: it acknowledged the end
    change_no      BIGINT       NOT NULL,
    changed_ns     BIGINT       NOT NULL,
    more           MEDIUMTEXT   NOT NULL, -- rare attributes, as JSON; '' if there are none
    inside_session VARBINARY(128),        -- the claim whose hold it is nested in; NULL if none
    inside_id      BIGINT,
    PRIMARY KEY (session, id),
    KEY claims_by_end (state, ended_ns),
    KEY claims_inside (inside_session, inside_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- One row for each target of a claim that is held or waits, or that ended without its holder
-- having acknowledged the end; in the order of the queue.
CREATE TABLE IF NOT EXISTS {targets} (
    path    VARBINARY(512) NOT NULL,
    -- class: 0 held, 1 held and converting, 2 waiting, 3 waiting with a soft writer policy,
    -- 4 ended without acknowledgement
    class   SMALLINT       NOT NULL,
    `rank`  INT            NOT NULL, -- the negative of its priority: the lowest goes first
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

-- A running estimate of how long holds of a path last. It only serves to estimate waits, so
-- small changes are written rarely.
CREATE TABLE IF NOT EXISTS {hold_times} (
    path        VARBINARY(512) PRIMARY KEY,
    estimate_ns BIGINT         NOT NULL,
    at_ns       BIGINT         NOT NULL -- when the latest hold ended
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Claims that another process has changed: the process reads them again and removes the rows.
CREATE TABLE IF NOT EXISTS {wakeups} (
    n       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    process VARBINARY(128) NOT NULL,
    session VARBINARY(128) NOT NULL,
    id      BIGINT         NOT NULL,
    sent_ns BIGINT         NOT NULL,
    KEY wakeups_by_process (process, n)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Processes that watch all changes. While there is one, the row of an ended claim stays for a
-- minute, so that watchers see its reason.
CREATE TABLE IF NOT EXISTS {watchers} (
    process  VARBINARY(128) NOT NULL PRIMARY KEY,
    until_ns BIGINT         NOT NULL -- the process extends this while it watches
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Rising numbers: each inserted row stands for 1024 of them, for tickets, fences and epochs.
CREATE TABLE IF NOT EXISTS {sequences} (
    n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB;

-- Rows that transactions lock in place of paths: 0 for the root, 1 to 4096 for the hash of a path.
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
       (SELECT j.units
        FROM JSON_TABLE(c.targets, '$[*]' COLUMNS (
            path VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.path', units INT PATH '$.units')) j
        WHERE t.mode = 3 AND CAST(j.path AS BINARY) = t.path) AS units,
       c.who, c.note,
       CONVERT(c.session USING utf8mb4) COLLATE utf8mb4_bin AS session, c.id AS claim, c.fence,
       ROUND((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
              - c.granted_ns DIV 1000) / 1000000, 1) AS seconds,
       FROM_UNIXTIME(s.deadline_ns DIV 1000000000) AS lives_until
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (0, 1) AND s.state = 'open'
  AND COALESCE(s.deadline_ns DIV 1000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TRUE)
ORDER BY t.path, c.fence;

-- One row for each target that a claim waits for, roughly in the order of the queue.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {waiting} AS
SELECT CONVERT(t.path USING utf8mb4) COLLATE utf8mb4_bin AS path, ELT(t.mode, 'exclusive', 'shared', 'permits') AS mode,
       (SELECT j.units
        FROM JSON_TABLE(c.targets, '$[*]' COLUMNS (
            path VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.path', units INT PATH '$.units')) j
        WHERE t.mode = 3 AND CAST(j.path AS BINARY) = t.path) AS units,
       c.who, c.note,
       CONVERT(c.session USING utf8mb4) COLLATE utf8mb4_bin AS session, c.id AS claim, c.priority, c.ticket,
       ROUND((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
              - c.arrived_ns DIV 1000) / 1000000, 1) AS seconds
FROM {targets} t
JOIN {claims} c ON c.session = t.session AND c.id = t.id
JOIN {sessions} s ON s.id = c.session
WHERE t.class IN (1, 2, 3) AND s.state = 'open'
  AND COALESCE(s.deadline_ns DIV 1000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TRUE)
ORDER BY t.path, t.class, t.`rank`, t.ticket;
