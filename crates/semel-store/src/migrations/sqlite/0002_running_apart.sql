-- Rows that run, apart from the others. Most of what is written is a fresh key, twice: claimed, and settled. Claimed,
-- it is a row in a small table, whose pages are written anyway. Settled, it is appended to `settled`, whole. The index
-- of all keys, in which a random key dirties a page of its own, is so written once and not twice, and no row grows.
--
-- A record is in the one table or in the other, by its state. Nothing but the write lock keeps it out of both.
CREATE TABLE running (
    key         TEXT    NOT NULL CHECK (key <> ''),
    scope       TEXT    NOT NULL CHECK (scope <> ''),
    fence       INTEGER NOT NULL CHECK (fence > 0),
    attempt     BLOB    NOT NULL CHECK (length(attempt) = 16),
    -- The attempts before that one, 16 bytes each, oldest first.
    spent       BLOB    NOT NULL CHECK (length(spent) % 16 = 0),
    attempts    INTEGER NOT NULL,
    algorithm   INTEGER,
    digest      BLOB             CHECK (length(digest) = 32),
    bound_by    INTEGER NOT NULL,
    doubt       INTEGER NOT NULL CHECK (doubt IN (0, 1)),
    first_at    INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    label       TEXT    NOT NULL,
    -- A running row without a lease's end could never lapse, so none can be written (case C94).
    lease_until INTEGER NOT NULL,
    -- 0 new, 1 released, 2 lapsed, 3 unknown, 4 dead, 5 running
    was         INTEGER NOT NULL CHECK (was BETWEEN 0 AND 5),
    settles     INTEGER NOT NULL CHECK (settles IN (0, 1)),
    input       BLOB,
    PRIMARY KEY (key, scope),
    CHECK ((algorithm IS NULL) = (digest IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE settled (
    id             INTEGER PRIMARY KEY,
    key            TEXT    NOT NULL CHECK (key <> ''),
    -- 31 bits made of the scope, so that the index need not hold it. Only the scope itself tells two scopes apart.
    scope_hash     INTEGER NOT NULL CHECK (scope_hash BETWEEN 0 AND 2147483647),
    scope          TEXT    NOT NULL CHECK (scope <> ''),
    -- 2 released, 3 completed, 4 unknown, 5 dead
    state          INTEGER NOT NULL CHECK (state BETWEEN 2 AND 5),
    fence          INTEGER NOT NULL CHECK (fence > 0),
    attempt        BLOB    NOT NULL CHECK (length(attempt) = 16),
    spent          BLOB    NOT NULL CHECK (length(spent) % 16 = 0),
    attempts       INTEGER NOT NULL,
    algorithm      INTEGER,
    digest         BLOB             CHECK (length(digest) = 32),
    bound_by       INTEGER NOT NULL,
    doubt          INTEGER NOT NULL CHECK (doubt IN (0, 1)),
    first_at       INTEGER NOT NULL,
    since          INTEGER NOT NULL,
    label          TEXT    NOT NULL,
    -- While it is released.
    not_before     INTEGER,
    -- While it is completed. The outcome and its format are there as long as it is kept.
    replay_until   INTEGER,
    outcome_format INTEGER,
    -- While it is released or completed.
    forget_at      INTEGER,
    -- While it is unknown or dead.
    cause          TEXT,
    -- When there is something to free next.
    sweep_at       INTEGER GENERATED ALWAYS AS
        (nullif(CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END, 9223372036854775807))
        VIRTUAL,
    -- The big ones last: what comes before them is read without them.
    input          BLOB,
    outcome        BLOB,
    CHECK ((algorithm IS NULL) = (digest IS NULL)),
    CHECK ((state = 2) = (not_before IS NOT NULL)),
    CHECK ((state = 3) = (replay_until IS NOT NULL)),
    CHECK ((state IN (2, 3)) = (forget_at IS NOT NULL)),
    CHECK ((state IN (4, 5)) = (cause IS NOT NULL)),
    CHECK (outcome_format IS NULL OR state = 3),
    CHECK ((outcome IS NULL) = (outcome_format IS NULL))
) STRICT;

-- Ids are given in the order of settlement, so what falls due together stands together. One row for each 64 of them
-- (`id >> 6`) that hold something to free at any time: not later than the first of it falls due.
CREATE TABLE due (
    block  INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL
) STRICT;

INSERT INTO running
    SELECT key, scope, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label,
           lease_until, was, settles, bytes
    FROM records LEFT JOIN inputs ON record = id
    WHERE state = 1;

-- Each scope's hash is made once: character by character, (hash + character) * 16777619, of which the lower 31 bits.
INSERT INTO settled
        (id, key, scope_hash, scope, state, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt,
         first_at, since, label, not_before, replay_until, outcome_format, forget_at, cause, input, outcome)
    WITH RECURSIVE
        walked (name, place, hash) AS (
            SELECT name, 1, 0 FROM (SELECT DISTINCT scope AS name FROM records)
            UNION ALL
            SELECT name, place + 1, ((hash + unicode(substr(name, place, 1))) * 16777619) & 2147483647
            FROM walked
            WHERE place <= length(name)
        ),
        hashed AS MATERIALIZED (SELECT name, hash FROM walked WHERE place > length(name))
    SELECT id, key, hash, scope, state, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt,
           first_at, since, label, not_before, replay_until, outcome_format, forget_at, cause, inputs.bytes,
           outcomes.bytes
    FROM records CROSS JOIN hashed ON name = scope
         LEFT JOIN inputs ON inputs.record = id
         LEFT JOIN outcomes ON outcomes.record = id
    WHERE state <> 1
    ORDER BY id;

-- The statements of schema 1 find none of these, so a program that still runs with them fails and writes nothing.
DROP TABLE inputs;
DROP TABLE outcomes;
DROP TABLE records;

-- The key first: a key is looked up in every scope, and searched by how it begins.
CREATE INDEX settled_key ON settled (key, scope_hash);

-- Only what is unknown or dead: as many rows as wait for somebody, at any size of the table.
CREATE INDEX settled_open ON settled (since, state) WHERE state >= 4;

INSERT INTO due SELECT id >> 6, min(sweep_at) FROM settled WHERE sweep_at IS NOT NULL GROUP BY id >> 6;

CREATE INDEX due_first ON due (due_at);
