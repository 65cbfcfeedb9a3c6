-- What happened to a key, for people: `semel::history`. A key that runs once and completes has no row here.
--
-- Rows go when the record is swept. A program that knows only schema 2 and still runs goes on as before; what it sweeps
-- leaves rows behind that nobody reads, until the key is forgotten the next time.
CREATE TABLE history (
    key      TEXT    NOT NULL CHECK (key <> ''),
    scope    TEXT    NOT NULL CHECK (scope <> ''),
    -- Counts up; the last hundred of a key are kept.
    number   INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    attempt  BLOB    NOT NULL CHECK (length(attempt) = 16),
    attempts INTEGER NOT NULL,
    what     TEXT    NOT NULL,
    through  TEXT    NOT NULL,
    cause    TEXT,
    ran_ms   INTEGER,
    by       TEXT,
    reason   TEXT,
    PRIMARY KEY (key, scope, number)
) STRICT, WITHOUT ROWID;
