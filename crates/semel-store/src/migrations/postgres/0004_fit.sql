-- The same rules and answers as before, for less of the server's time. PostgreSQL reads and plans each CHECK anew for every
-- statement that writes, and the body of a function in SQL for every call; those of plpgsql once for each session.

-- What a row of semel.records is: the CHECKs of its table in one expression. A test compares the two.
CREATE FUNCTION semel.is_fit(
    key text, scope text, fence bigint, algorithm smallint, digest bytea, state smallint, was smallint, settles boolean,
    open_at bigint, not_before bigint, replay_until bigint, forget_at bigint, outcome_format smallint, cause text
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN fence > 0
        AND octet_length(key) BETWEEN 1 AND 255 AND octet_length(scope) BETWEEN 1 AND 255
        AND octet_length(digest) IS NOT DISTINCT FROM CASE WHEN algorithm IS NOT NULL THEN 32 END
        AND CASE state
            -- A running row without a lease's end could never lapse, so none can be written (case C94).
            WHEN 1 THEN num_nulls(open_at, was, settles) = 0 AND was BETWEEN 0 AND 5
                AND num_nonnulls(not_before, replay_until, forget_at, outcome_format, cause) = 0
            WHEN 2 THEN num_nulls(not_before, forget_at) = 0
                AND num_nonnulls(open_at, replay_until, outcome_format, cause) = 0
            WHEN 3 THEN num_nulls(replay_until, forget_at) = 0 AND num_nonnulls(open_at, not_before, cause) = 0
            ELSE state IN (4, 5) AND num_nulls(open_at, cause) = 0
                AND num_nonnulls(not_before, replay_until, forget_at, outcome_format) = 0
        END
        AND (state = 1 OR (was IS NULL OR settles IS NULL) AND coalesce(was, 0) BETWEEN 0 AND 5);
END
$$;

-- Under the table's lock, in the migration's transaction: no row is written that neither looked at. By the catalogue,
-- since PostgreSQL named them.
DO $$
DECLARE
    v_name name;
BEGIN
    FOR v_name IN SELECT conname FROM pg_constraint WHERE conrelid = 'semel.records'::regclass AND contype = 'c' LOOP
        EXECUTE format('ALTER TABLE semel.records DROP CONSTRAINT %I', v_name);
    END LOOP;
END
$$;
ALTER TABLE semel.records ADD CONSTRAINT records_fit CHECK (semel.is_fit(
    key, scope, fence, algorithm, digest, state, was, settles, open_at, not_before, replay_until, forget_at,
    outcome_format, cause
));

-- As it was, in plpgsql.
CREATE OR REPLACE FUNCTION semel.once(
    scope text, key text, attempt uuid, fingerprint bytea, twin text DEFAULT 'wait',
    lease_ms bigint DEFAULT 30000, rerun boolean DEFAULT false, attempts_max bigint DEFAULT 4294967295,
    label text DEFAULT '', input bytea DEFAULT NULL, algorithm integer DEFAULT 1,
    OUT claim text, OUT fence bigint, OUT attempts bigint, OUT was text, OUT doubt boolean,
    OUT age_ms bigint, OUT retry_after_ms bigint, OUT cause text, OUT bound_algorithm integer,
    OUT format integer, OUT outcome bytea
)
LANGUAGE plpgsql VOLATILE
SET semel.once = 'on'
AS $$
BEGIN
    SELECT one.claim, one.fence, one.attempts, one.was, one.doubt, one.age_ms, one.retry_after_ms, one.cause,
           one.bound_algorithm, one.format, one.outcome
        INTO claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, format, outcome
        FROM semel.claim(scope, key, attempt, fingerprint, lease_ms, rerun, attempts_max, label, input, algorithm, twin)
            AS one;
END
$$;

COMMENT ON FUNCTION semel.is_fit(text, text, bigint, smallint, bytea, smallint, smallint, boolean, bigint, bigint, bigint, bigint, smallint, text) IS
'Of the table semel.records. Not an interface.';
