-- Claims and completions in one step, of work whose outcome is known before it begins: messages, in the transaction that
-- has their effect. What lies between the two nobody can see, so a new key is written once, as completed.
--
-- Atomic: each row is inserted, or judged under its lock by claim_one and settle_one. A key that another open transaction
-- has inserted is waited for. All keys are taken in the order of the index, so that two calls that share keys do not wait
-- for each other crosswise. The keys of one call differ; NULL in their place says that the caller found no transaction
-- begun. An outcome that is kept for no time is not written.
CREATE FUNCTION semel.claim_completed(
    p_scopes text[], p_keys text[], p_attempts bytea[], p_algorithms bigint[], p_digests bytea[], p_reruns boolean[],
    p_attempts_max bigint[], p_lease_ms bigint[], p_labels text[], p_format bigint, p_outcome bytea, p_for_ms bigint,
    p_remember_ms bigint
) RETURNS TABLE (
    n integer, claim text, fence bigint, attempts bigint, was text, doubt boolean, age_ms bigint, retry_after_ms bigint,
    cause text, bound_algorithm integer, format integer, outcome bytea
)
LANGUAGE plpgsql VOLATILE ROWS 100
AS $$
#variable_conflict use_column
DECLARE
    v_now   bigint := semel.clock();
    v_until bigint := semel.later(v_now, p_for_ms);
    v_fresh integer[] := '{}';
    v_id    bigint;
    v_one   semel.answer;
    v_n     integer;
BEGIN
    IF cardinality(p_keys) = 1 THEN
        -- One row: without what the statement for many sets up.
        INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, algorithm, digest, bound_by,
                doubt, first_at, since, label, replay_until, forget_at, outcome_format)
            VALUES (p_keys[1], p_scopes[1], 3, 1, encode(p_attempts[1], 'hex')::uuid, 1, p_algorithms[1], p_digests[1], 1,
                false, v_now, v_now, p_labels[1], v_until, greatest(v_until, semel.later(v_now, p_remember_ms)),
                CASE WHEN p_for_ms > 0 THEN p_format END)
            ON CONFLICT (key, scope) DO NOTHING
            RETURNING id INTO v_id;
        IF FOUND THEN
            IF p_for_ms > 0 THEN
                INSERT INTO semel.outcomes (record, bytes) VALUES (v_id, p_outcome);
            END IF;
            n := 1; claim := 'acquired'; fence := 1; attempts := 1; was := 'new'; doubt := false;
            RETURN NEXT;
            RETURN;
        END IF;
    ELSIF p_keys IS NULL THEN
        RAISE EXCEPTION 'semel.claim_completed: no transaction was begun' USING ERRCODE = 'SM003';
    ELSE
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest(p_scopes, p_keys, p_attempts, p_algorithms, p_digests, p_labels)
                WITH ORDINALITY AS one (scope, key, attempt, algorithm, digest, label, n)
        ), inserted AS (
            INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, algorithm, digest, bound_by,
                    doubt, first_at, since, label, replay_until, forget_at, outcome_format)
                SELECT key, scope, 3, 1, encode(attempt, 'hex')::uuid, 1, algorithm, digest, 1,
                       false, v_now, v_now, label, v_until, greatest(v_until, semel.later(v_now, p_remember_ms)),
                       CASE WHEN p_for_ms > 0 THEN p_format END
                FROM asked
                ORDER BY key COLLATE "C", scope COLLATE "C"
                ON CONFLICT (key, scope) DO NOTHING
                RETURNING id, key, scope
        ), kept AS (
            INSERT INTO semel.outcomes (record, bytes) SELECT id, p_outcome FROM inserted WHERE p_for_ms > 0
        )
        SELECT coalesce(array_agg(n::integer), '{}') INTO v_fresh FROM asked JOIN inserted USING (key, scope);
        RETURN QUERY SELECT one, 'acquired'::text, 1::bigint, 1::bigint, 'new'::text, false, NULL::bigint, NULL::bigint,
                NULL::text, NULL::integer, NULL::integer, NULL::bytea
            FROM unnest(v_fresh) AS one;
        IF cardinality(v_fresh) = cardinality(p_keys) THEN
            RETURN;
        END IF;
    END IF;
    FOR v_n IN
        SELECT i FROM generate_subscripts(p_keys, 1) AS i WHERE i <> ALL (v_fresh)
        ORDER BY p_keys[i] COLLATE "C", p_scopes[i] COLLATE "C"
    LOOP
        SELECT * INTO v_one FROM semel.claim_one(p_scopes[v_n], p_keys[v_n], encode(p_attempts[v_n], 'hex')::uuid, NULL,
            false, p_algorithms[v_n]::smallint, p_digests[v_n], p_reruns[v_n], p_attempts_max[v_n], p_lease_ms[v_n],
            p_labels[v_n], NULL, 0);
        IF v_one.claim = 'acquired' THEN
            PERFORM semel.must(semel.settle_one(p_scopes[v_n], p_keys[v_n], v_one.fence,
                encode(p_attempts[v_n], 'hex')::uuid, 'complete', p_format::smallint, p_outcome, p_for_ms, p_remember_ms,
                NULL, NULL, NULL));
        END IF;
        n := v_n; claim := v_one.claim; fence := v_one.fence; attempts := v_one.attempts;
        was := v_one.was; doubt := v_one.doubt; age_ms := v_one.age_ms;
        retry_after_ms := v_one.retry_after_ms; cause := v_one.cause; bound_algorithm := v_one.bound_algorithm;
        format := v_one.format; outcome := v_one.outcome;
        RETURN NEXT;
    END LOOP;
END
$$;

COMMENT ON FUNCTION semel.claim_completed(text[], text[], bytea[], bigint[], bytea[], boolean[], bigint[], bigint[], text[], bigint, bytea, bigint, bigint) IS
'Of the inboxes of Semel''s programs. Not an interface.';
