-- One row for each scope and key. Instants are milliseconds since 1970-01-01 UTC on the server's clock;
-- 9223372036854775807 is "for ever".
--
-- Keys and scopes are text COLLATE "C": compared byte for byte in every database, whatever its collation, and readable
-- for people. bytea would be as exact, and says nothing to whoever looks into the table.
CREATE TABLE semel.records (
    -- Names the row's outcome.
    id             bigint   NOT NULL GENERATED ALWAYS AS IDENTITY (CACHE 32),
    fence          bigint   NOT NULL,
    bound_by       bigint   NOT NULL,
    attempts       bigint   NOT NULL,
    first_at       bigint   NOT NULL,
    since          bigint   NOT NULL,
    -- From when on somebody has to look at it: the lease's end of what runs; of what is unknown or dead, since when.
    open_at        bigint,
    -- While it is released.
    not_before     bigint,
    -- While it is completed.
    replay_until   bigint,
    -- While it is released or completed.
    forget_at      bigint,
    -- The attempt that claimed last, and those before it, oldest first, the last 128.
    attempt        uuid     NOT NULL,
    -- 1 running, 2 released, 3 completed, 4 unknown, 5 dead
    state          smallint NOT NULL,
    -- While it runs, what it was before: 0 new, 1 released, 2 lapsed, 3 unknown, 4 dead, 5 running
    was            smallint,
    algorithm      smallint,
    -- While there is an outcome in the other table.
    outcome_format smallint,
    -- While it runs: held by a claim that settles, not by a run.
    settles        boolean,
    -- While it runs: claimed in the transaction that has the effect, so not to be committed while it runs.
    once           boolean,
    doubt          boolean  NOT NULL,
    key            text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    label          text     NOT NULL,
    digest         bytea,
    -- While it is unknown or dead.
    cause          text,
    spent          uuid[]   NOT NULL DEFAULT '{}',
    input          bytea,
    -- The key first: a key is looked up in every scope, and searched by how it begins.
    PRIMARY KEY (key, scope),
    -- A running row without a lease's end could never lapse, so none can be written (case C94). The rest of what a row
    -- is has no CHECK: PostgreSQL reads and plans each one anew for every statement that writes. Rows are written by
    -- Semel's functions and programs only, and the tests look at what those write.
    CONSTRAINT records_lapse CHECK (state <> 1 OR open_at IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Only what runs, is unknown or is dead: as many rows as there are open operations, at any size of the table.
CREATE INDEX records_open ON semel.records (open_at) WHERE open_at IS NOT NULL;

-- When there is something to free next. What is kept for ever is not in it.
CREATE INDEX records_sweep ON semel.records
    ((CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END))
    WHERE (CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END) < 9223372036854775807;

-- Outcomes apart, so that rows stay slim for claims. No foreign key: it would lock the record for each outcome.
CREATE TABLE semel.outcomes (
    record bigint PRIMARY KEY,
    bytes  bytea  NOT NULL
);

-- What happened to a key, for people. A key that runs once and completes has no row here.
CREATE TABLE semel.history (
    key      text COLLATE "C" NOT NULL,
    scope    text COLLATE "C" NOT NULL,
    -- Counts up; the last hundred of a key are kept.
    number   bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at       bigint NOT NULL,
    fence    bigint NOT NULL,
    attempt  uuid   NOT NULL,
    attempts bigint NOT NULL,
    what     text   NOT NULL,
    through  text   NOT NULL,
    cause    text,
    ran_ms   bigint,
    by       text,
    reason   text,
    PRIMARY KEY (key, scope, number)
);

COMMENT ON SCHEMA semel IS 'Semel: operations that take effect once';
COMMENT ON TABLE semel.records IS 'What is known of each scope and key. Written by the functions of this schema or by Semel''s programs only.';
COMMENT ON TABLE semel.outcomes IS 'What completed keys are answered with';
COMMENT ON TABLE semel.history IS 'How attempts ended that did not simply complete, for people';
