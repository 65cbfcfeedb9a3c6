-- A claim in the transaction that has the effect: key and effect commit together or not at all.

-- Refuses the COMMIT of a transaction that claimed with once() and did not say how it ended: what it did would be
-- committed without its outcome. It looks at the row as it is at the commit, so it also catches a completion that a
-- savepoint took back.
CREATE FUNCTION semel.must_be_settled() RETURNS trigger
LANGUAGE plpgsql
SET enable_seqscan = off
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

-- Only once() writes such rows, and only claims write the attempt. Of an idle trigger a short condition is what costs.
CREATE CONSTRAINT TRIGGER once_is_settled AFTER INSERT OR UPDATE OF attempt ON semel.records
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.once) EXECUTE FUNCTION semel.must_be_settled();

CREATE FUNCTION semel.once(
    scope text, key text, attempt uuid, fingerprint bytea, twin text DEFAULT 'wait',
    lease_ms bigint DEFAULT 30000, rerun boolean DEFAULT false, attempts_max bigint DEFAULT 4294967295,
    label text DEFAULT '', input bytea DEFAULT NULL, algorithm integer DEFAULT 1
) RETURNS semel.answer
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF semel.may_claim(scope, key, attempt, fingerprint, lease_ms, rerun, attempts_max, label, algorithm) THEN
        RETURN semel.claim_one(scope, key, attempt, NULL, false, algorithm::smallint, fingerprint, rerun, attempts_max,
            lease_ms, label, input, semel.hold(scope, key, twin), true);
    END IF;
    RETURN semel.refuse_claim(scope, key);
END
$$;

COMMENT ON FUNCTION semel.once(text, text, uuid, bytea, text, bigint, boolean, bigint, text, bytea, integer) IS
'As claim(), for the transaction that has the effect: BEGIN, once, the effect, complete, COMMIT. A COMMIT without complete, release, park or bury is refused with error SM003. twin: with ''wait'' the call waits until another open transaction with this key ends; with ''refuse'' it answers ''in-flight'' at once.';
COMMENT ON FUNCTION semel.must_be_settled() IS 'Of once. Not an interface.';
