-- A claim in the transaction that has the effect: key and effect commit together or not at all.

-- Refuses the COMMIT of a transaction that claimed with once() and did not say how it ended: what it did would be
-- committed without its outcome. It looks at the row as it is at the commit, so it also catches a completion that a
-- savepoint took back.
CREATE FUNCTION semel.must_be_settled() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM semel.records AS r
        WHERE r.key = NEW.key AND r.scope = NEW.scope AND r.fence = NEW.fence AND r.attempt = NEW.attempt AND r.state = 1
    ) THEN
        RAISE EXCEPTION 'an operation was claimed in this transaction and not completed: it is rolled back'
            USING ERRCODE = 'SM003', HINT = 'Call semel.complete, release, park or bury before COMMIT.';
    END IF;
    RETURN NULL;
END
$$;

-- Only once() turns the setting on. For every other write this is one comparison.
CREATE CONSTRAINT TRIGGER once_is_settled AFTER INSERT OR UPDATE ON semel.records
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state = 1 AND current_setting('semel.once', true) = 'on')
    EXECUTE FUNCTION semel.must_be_settled();

CREATE FUNCTION semel.once(
    scope text, key text, attempt uuid, fingerprint bytea, twin text DEFAULT 'wait',
    lease_ms bigint DEFAULT 30000, rerun boolean DEFAULT false, attempts_max bigint DEFAULT 4294967295,
    label text DEFAULT '', input bytea DEFAULT NULL, algorithm integer DEFAULT 1,
    OUT claim text, OUT fence bigint, OUT attempts bigint, OUT was text, OUT doubt boolean,
    OUT age_ms bigint, OUT retry_after_ms bigint, OUT cause text, OUT bound_algorithm integer,
    OUT format integer, OUT outcome bytea
)
LANGUAGE sql VOLATILE
SET semel.once = 'on'
AS $$
    SELECT one.claim, one.fence, one.attempts, one.was, one.doubt, one.age_ms, one.retry_after_ms, one.cause,
           one.bound_algorithm, one.format, one.outcome
    FROM semel.claim(scope, key, attempt, fingerprint, lease_ms, rerun, attempts_max, label, input, algorithm, twin) AS one
$$;

COMMENT ON FUNCTION semel.once(text, text, uuid, bytea, text, bigint, boolean, bigint, text, bytea, integer) IS
'As claim(), for the transaction that has the effect: BEGIN, once, the effect, complete, COMMIT. A COMMIT without complete, release, park or bury is refused with error SM003. twin: with ''wait'' the call waits until another open transaction with this key ends; with ''refuse'' it answers ''in-flight'' at once.';
COMMENT ON FUNCTION semel.must_be_settled() IS 'Of once. Not an interface.';
