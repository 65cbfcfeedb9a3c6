-- One row for each scope and key. Instants are milliseconds since 1970-01-01 UTC on this machine's clock;
-- 9223372036854775807 is "for ever".
CREATE TABLE records (
    id             INTEGER PRIMARY KEY,
    key            TEXT    NOT NULL CHECK (key <> ''),
    scope          TEXT    NOT NULL CHECK (scope <> ''),
    -- 1 running, 2 released, 3 completed, 4 unknown, 5 dead
    state          INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
    fence          INTEGER NOT NULL CHECK (fence > 0),
    attempt        BLOB    NOT NULL CHECK (length(attempt) = 16),
    -- The attempts before that one, 16 bytes each, oldest first.
    spent          BLOB    NOT NULL CHECK (length(spent) % 16 = 0),
    attempts       INTEGER NOT NULL,
    algorithm      INTEGER,
    digest         BLOB             CHECK (length(digest) = 32),
    bound_by       INTEGER NOT NULL,
    doubt          INTEGER NOT NULL CHECK (doubt IN (0, 1)),
    first_at       INTEGER NOT NULL,
    since          INTEGER NOT NULL,
    label          TEXT    NOT NULL,
    has_input      INTEGER NOT NULL CHECK (has_input IN (0, 1)),
    -- While it runs. A running row without a lease's end could never lapse, so none can be written (case C94).
    lease_until    INTEGER,
    -- 0 new, 1 released, 2 lapsed, 3 unknown, 4 dead, 5 running
    was            INTEGER          CHECK (was BETWEEN 0 AND 5),
    settles        INTEGER          CHECK (settles IN (0, 1)),
    -- While it is released.
    not_before     INTEGER,
    -- While it is completed. The format is there as long as the outcome is.
    replay_until   INTEGER,
    outcome_format INTEGER,
    -- While it is released or completed.
    forget_at      INTEGER,
    -- While it is unknown or dead.
    cause          TEXT,
    -- From when on somebody has to look at it.
    open_at        INTEGER GENERATED ALWAYS AS
        (CASE state WHEN 1 THEN lease_until WHEN 4 THEN since WHEN 5 THEN since END) VIRTUAL,
    -- When there is something to free next.
    sweep_at       INTEGER GENERATED ALWAYS AS
        (nullif(CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END, 9223372036854775807))
        VIRTUAL,
    CHECK ((algorithm IS NULL) = (digest IS NULL)),
    CHECK ((state = 1) = (lease_until IS NOT NULL AND was IS NOT NULL AND settles IS NOT NULL)),
    CHECK ((state = 2) = (not_before IS NOT NULL)),
    CHECK ((state = 3) = (replay_until IS NOT NULL)),
    CHECK ((state IN (2, 3)) = (forget_at IS NOT NULL)),
    CHECK ((state IN (4, 5)) = (cause IS NOT NULL)),
    CHECK (outcome_format IS NULL OR state = 3)
) STRICT;

-- The key first: a key is looked up in every scope, and searched by how it begins.
CREATE UNIQUE INDEX records_key ON records (key, scope);

-- Only what runs, is unknown or is dead: as many rows as there are open operations, at any size of the table.
-- The state is there so that running rows are passed over without being read.
CREATE INDEX records_open ON records (open_at, state) WHERE open_at IS NOT NULL;

-- What is kept for ever is not in it.
CREATE INDEX records_sweep ON records (sweep_at) WHERE sweep_at IS NOT NULL;

-- Outcomes apart, so that rows stay slim for claims, and forgetting an outcome frees all of it.
CREATE TABLE outcomes (
    record INTEGER PRIMARY KEY,
    bytes  BLOB NOT NULL
) STRICT;

CREATE TABLE inputs (
    record INTEGER PRIMARY KEY,
    bytes  BLOB NOT NULL
) STRICT;
