-- Written for MariaDB 10.6 and MySQL 8 alike, and repeatable: each statement of MySQL commits by itself, so a migration
-- that was cut off is made again from its beginning.
--
-- One row for each scope and key. Keys are bytes (VARBINARY): no collation, case, accent or trailing space makes two of
-- them one. Instants are milliseconds since 1970-01-01 UTC on the server's clock; 9223372036854775807 is "for ever".
--
-- The row is found by its key and lies by its id. So a new row goes behind the others, and only the index of keys is
-- written at a random place. InnoDB puts an input or an outcome that makes a row longer than half a page into pages of
-- its own.
CREATE TABLE IF NOT EXISTS semel_records (
    id             BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
    `key`          VARBINARY(255)   NOT NULL,
    scope          VARBINARY(255)   NOT NULL,
    -- 1 running, 2 released, 3 completed, 4 unknown, 5 dead
    state          TINYINT UNSIGNED NOT NULL,
    -- Running: the end of the lease. Released or completed: when there is something to free next. Unknown or dead: since
    -- when. A running row without an end could never lapse, so none can be written (case C94).
    due_at         BIGINT           NOT NULL,
    fence          BIGINT UNSIGNED  NOT NULL,
    attempt        BINARY(16)       NOT NULL,
    -- The attempts before that one, 16 bytes each, oldest first.
    spent          VARBINARY(2064)  NOT NULL,
    attempts       INT UNSIGNED     NOT NULL,
    algorithm      TINYINT UNSIGNED,
    digest         BINARY(32),
    bound_by       BIGINT UNSIGNED  NOT NULL,
    doubt          TINYINT UNSIGNED NOT NULL,
    first_at       BIGINT           NOT NULL,
    since          BIGINT           NOT NULL,
    label          VARBINARY(200)   NOT NULL,
    -- While it runs. was: 0 new, 1 released, 2 lapsed, 3 unknown, 4 dead, 5 running
    lease_until    BIGINT,
    was            TINYINT UNSIGNED,
    settles        TINYINT UNSIGNED,
    -- While it is released.
    not_before     BIGINT,
    -- While it is completed. The outcome and its format are there as long as it is kept.
    replay_until   BIGINT,
    outcome_format TINYINT UNSIGNED,
    -- While it is released or completed.
    forget_at      BIGINT,
    -- While it is unknown or dead.
    cause          VARBINARY(100),
    input          LONGBLOB,
    outcome        LONGBLOB,
    PRIMARY KEY (id),
    -- The key first: a key is looked up in every scope, and searched by how it begins.
    UNIQUE KEY semel_records_key (`key`, scope),
    -- One index for what is open and for what is to be freed; in each state the next one is written at its end.
    KEY semel_records_due (state, due_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET = binary;

-- What happened to a key, for people: `semel::history`. A key that runs once and completes has no row here.
CREATE TABLE IF NOT EXISTS semel_history (
    record   BIGINT UNSIGNED  NOT NULL,
    -- Counts up; the last hundred of a record are kept.
    number   INT UNSIGNED     NOT NULL,
    at       BIGINT           NOT NULL,
    fence    BIGINT UNSIGNED  NOT NULL,
    attempt  BINARY(16)       NOT NULL,
    attempts INT UNSIGNED     NOT NULL,
    what     VARBINARY(32)    NOT NULL,
    through  VARBINARY(32)    NOT NULL,
    cause    VARBINARY(100),
    ran_ms   BIGINT,
    said_by  VARBINARY(300),
    reason   VARBINARY(300),
    PRIMARY KEY (record, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET = binary;
