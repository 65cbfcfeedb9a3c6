-- The verbs. They repeat the rules of Semel's record.rs; a test compares them on random histories.
--
-- Each call is atomic because it changes one row, under that row's lock or by inserting it: a claim that finds the row
-- locked waits, and judges what is there afterwards. Each statement within a function has a snapshot of its own at READ
-- COMMITTED. At the levels above it a row that changed since the transaction's snapshot is the error 40001.

-- The wall clock, not the transaction's beginning: a claim may have waited for a lock.
CREATE FUNCTION semel.clock() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$ SELECT floor(date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint $$;

-- What cannot be counted is never.
CREATE FUNCTION semel.later(instant bigint, ms bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN ms > 9223372036854775807 - instant THEN 9223372036854775807 ELSE instant + greatest(ms, 0) END $$;

-- The attempt is over: it is remembered, the oldest beyond 128 are not.
CREATE FUNCTION semel.spend(spent uuid[], attempt uuid) RETURNS uuid[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN attempt = ANY (spent) THEN spent
        ELSE (spent || attempt)[greatest(1, cardinality(spent) - 126):]
    END
$$;

-- A part that is NULL has the length -1: it looks neither like an empty one nor like none.
CREATE FUNCTION semel.fingerprint(VARIADIC parts text[]) RETURNS bytea
LANGUAGE sql STABLE
AS $$
    SELECT sha256(string_agg(int8send(coalesce(octet_length(bytes), -1)) || coalesce(bytes, ''), '' ORDER BY n))
    FROM (SELECT convert_to(part, 'UTF8') AS bytes, n FROM unnest(parts) WITH ORDINALITY AS one (part, n)) AS all_parts
$$;

-- What a claim comes to, in words.
CREATE TYPE semel.answer AS (
    claim text, fence bigint, attempts bigint, was text, doubt boolean, age_ms bigint, retry_after_ms bigint,
    cause text, bound_algorithm integer, format integer, outcome bytea
);

CREATE FUNCTION semel.was_word(code smallint) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT ('{new,released,lapsed,unknown,dead,running}'::text[])[code + 1] $$;

-- One claim: by a run where seen is null, else to settle what has that fence. Where it meets another open transaction
-- it waits (twin 0), or what that one has locked reads as in flight (1). With 2 it only looks: what it would have to
-- write reads as in flight. With once the row may not be committed while it runs.
--
-- A fresh key is one INSERT. PostgreSQL prepares the settings and the variables of a function at each call, so what is
-- known already is judged in a function of its own.
CREATE FUNCTION semel.claim_one(
    p_scope text, p_key text, p_attempt uuid,
    p_seen bigint, p_force boolean,
    p_algorithm smallint, p_digest bytea, p_rerun boolean, p_attempts_max bigint,
    p_lease_ms bigint, p_label text, p_input bytea, p_twin integer, p_once boolean DEFAULT NULL
) RETURNS semel.answer
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now bigint;
    v_one semel.answer;
BEGIN
    LOOP
        IF p_seen IS NULL AND p_twin < 2 THEN
            v_now := semel.clock();
            INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, algorithm, digest, bound_by,
                    doubt, first_at, since, label, input, open_at, was, settles, once)
                VALUES (p_key, p_scope, 1, 1, p_attempt, 1, p_algorithm, p_digest, 1,
                    false, v_now, v_now, p_label, p_input, semel.later(v_now, p_lease_ms), 0, false, p_once)
                ON CONFLICT (key, scope) DO NOTHING;
            IF FOUND THEN
                RETURN ROW('acquired', 1, 1, 'new', false, NULL, NULL, NULL, NULL, NULL, NULL)::semel.answer;
            END IF;
        END IF;
        v_one := semel.claim_known(p_scope, p_key, p_attempt, p_seen, p_force, p_algorithm, p_digest, p_rerun,
            p_attempts_max, p_lease_ms, p_label, p_input, p_twin, p_once);
        -- None: the row that the insert met is gone since, swept or rolled back. So it is tried again.
        IF v_one.claim IS NOT NULL THEN
            RETURN v_one;
        END IF;
    END LOOP;
END
$$;

-- The claim of a key that is known. Gives no claim where there is no row any more.
CREATE FUNCTION semel.claim_known(
    p_scope text, p_key text, p_attempt uuid,
    p_seen bigint, p_force boolean,
    p_algorithm smallint, p_digest bytea, p_rerun boolean, p_attempts_max bigint,
    p_lease_ms bigint, p_label text, p_input bytea, p_twin integer, p_once boolean,
    OUT claim text, OUT fence bigint, OUT attempts bigint, OUT was text, OUT doubt boolean,
    OUT age_ms bigint, OUT retry_after_ms bigint, OUT cause text, OUT bound_algorithm integer,
    OUT format integer, OUT outcome bytea
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    r        semel.records;
    v_now    bigint;
    v_locked boolean := false;
    v_over   boolean;
    v_was    smallint;
    v_missed integer := 0;
BEGIN
    LOOP
        IF NOT v_locked THEN
            SELECT * INTO r FROM semel.records WHERE key = p_key AND scope = p_scope;
            IF NOT FOUND THEN
                IF p_seen IS NOT NULL THEN
                    claim := 'moved';
                ELSIF p_twin = 2 THEN
                    claim := 'in-flight'; retry_after_ms := 1000; age_ms := 0;
                END IF;
                RETURN;
            END IF;
        END IF;

        v_now := semel.clock();
        age_ms := greatest(v_now - r.first_at, 0);
        v_was := NULL;
        v_over := p_attempt = r.attempt OR p_attempt = ANY (r.spent);
        CASE
            -- Past being remembered, it counts as absent.
            WHEN v_now >= r.forget_at THEN
                IF p_seen IS NOT NULL THEN
                    claim := 'moved'; RETURN;
                END IF;
                v_was := 0;
            -- The holder asks again.
            WHEN r.state = 1 AND r.attempt = p_attempt THEN
                v_was := -1;
            WHEN p_seen IS NOT NULL THEN
                v_was := CASE
                    WHEN r.state = 1 AND v_now >= r.open_at AND r.was = 4 AND r.settles THEN 4
                    WHEN r.state = 1 AND v_now >= r.open_at THEN 2
                    WHEN r.state = 1 AND p_force THEN 5
                    WHEN r.state = 4 THEN 3
                    WHEN r.state = 5 THEN 4
                END;
                IF v_was IS NULL OR r.fence <> p_seen OR v_over THEN
                    claim := 'moved'; RETURN;
                END IF;
            WHEN (r.algorithm, r.digest) <> (p_algorithm, p_digest) THEN
                claim := 'mismatch'; bound_algorithm := r.algorithm; RETURN;
            WHEN r.state = 1 AND v_now < r.open_at THEN
                claim := 'in-flight'; retry_after_ms := r.open_at - v_now; RETURN;
            -- What was dead, and whose redrive died, waits for a person.
            WHEN r.state = 1 AND (NOT p_rerun OR v_over OR (r.settles AND r.was = 4)) THEN
                claim := 'unknown'; fence := r.fence; cause := 'lapsed'; RETURN;
            WHEN r.state = 1 THEN
                v_was := 2;
            WHEN r.state = 2 AND (v_over OR v_now < r.not_before) THEN
                claim := 'in-flight'; retry_after_ms := greatest(r.not_before - v_now, 0); RETURN;
            WHEN r.state = 2 THEN
                v_was := 1;
            WHEN r.state = 3 AND r.outcome_format IS NOT NULL AND v_now < r.replay_until THEN
                SELECT bytes INTO outcome FROM semel.outcomes WHERE record = r.id;
                IF FOUND THEN
                    claim := 'completed'; attempts := r.attempts; format := r.outcome_format; RETURN;
                END IF;
                -- Swept since the row was read: then it reads otherwise now.
                v_missed := v_missed + 1;
                IF v_missed > 3 THEN
                    RAISE EXCEPTION 'the outcome of a completed key is missing' USING ERRCODE = 'data_corrupted';
                END IF;
                v_locked := false;
                CONTINUE;
            WHEN r.state = 3 THEN
                claim := 'forgotten'; RETURN;
            WHEN r.state = 4 AND (NOT p_rerun OR v_over) THEN
                claim := 'unknown'; fence := r.fence; cause := r.cause; RETURN;
            WHEN r.state = 4 THEN
                v_was := 3;
            ELSE
                claim := 'dead'; fence := r.fence; cause := r.cause; RETURN;
        END CASE;

        -- It is to be written: judged again under the row's lock, since it may change until that is had.
        EXIT WHEN v_locked;
        IF p_twin = 2 THEN
            claim := 'in-flight'; retry_after_ms := 1000;
            RETURN;
        ELSIF p_twin = 1 THEN
            SELECT * INTO r FROM semel.records WHERE key = p_key AND scope = p_scope FOR UPDATE SKIP LOCKED;
            v_locked := FOUND;
            IF NOT FOUND AND EXISTS (SELECT FROM semel.records WHERE key = p_key AND scope = p_scope) THEN
                claim := 'in-flight'; retry_after_ms := 1000;
                RETURN;
            END IF;
        ELSE
            SELECT * INTO r FROM semel.records WHERE key = p_key AND scope = p_scope FOR UPDATE;
            v_locked := FOUND;
        END IF;
    END LOOP;

    age_ms := NULL;
    IF v_was = -1 THEN
        UPDATE semel.records SET open_at = semel.later(v_now, p_lease_ms), attempt = p_attempt, once = p_once
            WHERE key = p_key AND scope = p_scope;
        claim := 'acquired'; fence := r.fence; attempts := r.attempts; was := semel.was_word(r.was); doubt := r.doubt;
        RETURN;
    END IF;
    IF v_was = 0 THEN
        DELETE FROM semel.outcomes WHERE record = r.id;
        r.fence := 0; r.attempts := 0; r.spent := '{}'; r.digest := NULL; r.doubt := false; r.first_at := v_now;
    ELSIF p_seen IS NULL AND r.attempts >= p_attempts_max THEN
        -- One that had released is spent by that; one that is open may still say how it ended.
        UPDATE semel.records
            SET state = 5, cause = 'attempts-exhausted', since = v_now, open_at = v_now, was = NULL, settles = NULL, once = NULL,
                not_before = NULL, forget_at = NULL,
                spent = CASE WHEN r.state = 2 THEN semel.spend(r.spent, r.attempt) ELSE r.spent END
            WHERE key = p_key AND scope = p_scope;
        claim := 'dead'; fence := r.fence; cause := 'attempts-exhausted'; age_ms := greatest(v_now - r.first_at, 0);
        RETURN;
    ELSE
        r.spent := semel.spend(r.spent, r.attempt);
    END IF;
    r.fence := r.fence + 1;
    IF p_seen IS NULL THEN
        r.attempts := r.attempts + 1;
        r.doubt := r.doubt OR v_was IN (2, 3);
        IF r.digest IS NULL THEN
            r.algorithm := p_algorithm; r.digest := p_digest; r.bound_by := r.fence;
            r.label := p_label; r.input := p_input;
        END IF;
    END IF;
    UPDATE semel.records
        SET state = 1, fence = r.fence, attempt = p_attempt, spent = r.spent, attempts = r.attempts,
            algorithm = r.algorithm, digest = r.digest, bound_by = r.bound_by, doubt = r.doubt,
            first_at = r.first_at, since = v_now, label = r.label, input = r.input,
            open_at = semel.later(v_now, p_lease_ms), was = v_was, settles = p_seen IS NOT NULL,
            once = p_once, not_before = NULL, replay_until = NULL, forget_at = NULL, outcome_format = NULL, cause = NULL
        WHERE key = p_key AND scope = p_scope;
    claim := 'acquired'; fence := r.fence; attempts := r.attempts; was := semel.was_word(v_was); doubt := r.doubt;
END
$$;

-- One fenced write: renew, complete, release, park or bury. Answers 'done', 'lease-lost' or 'refused'.
--
-- What runs under this very lease is completed by one UPDATE, as settle_known would do it: a running row has nothing in
-- it by which it could be forgotten or refused, and READ COMMITTED looks at the condition again where it had to wait.
CREATE FUNCTION semel.settle_one(
    p_scope text, p_key text, p_fence bigint, p_attempt uuid, p_how text,
    p_format smallint, p_outcome bytea, p_for_ms bigint, p_remember_ms bigint,
    p_unbind boolean, p_ran boolean, p_cause text
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    v_now bigint;
    v_id  bigint;
BEGIN
    IF p_how = 'complete' THEN
        v_now := semel.clock();
        UPDATE semel.records
            SET state = 3, since = v_now, doubt = false, replay_until = semel.later(v_now, p_for_ms),
                forget_at = semel.later(v_now, greatest(p_for_ms, p_remember_ms)), outcome_format = p_format,
                open_at = NULL, was = NULL, settles = NULL, once = NULL
            WHERE key = p_key AND scope = p_scope AND fence = p_fence AND attempt = p_attempt AND state = 1
            RETURNING id INTO v_id;
        IF FOUND THEN
            INSERT INTO semel.outcomes (record, bytes) VALUES (v_id, p_outcome);
            RETURN 'done';
        END IF;
    END IF;
    RETURN semel.settle_known(p_scope, p_key, p_fence, p_attempt, p_how, p_format, p_outcome, p_for_ms, p_remember_ms,
        p_unbind, p_ran, p_cause);
END
$$;

-- The rules of a fenced write.
CREATE FUNCTION semel.settle_known(
    p_scope text, p_key text, p_fence bigint, p_attempt uuid, p_how text,
    p_format smallint, p_outcome bytea, p_for_ms bigint, p_remember_ms bigint,
    p_unbind boolean, p_ran boolean, p_cause text
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    r       semel.records;
    v_now   bigint;
    v_until bigint;
BEGIN
    SELECT * INTO r FROM semel.records WHERE key = p_key AND scope = p_scope FOR UPDATE;
    v_now := semel.clock();
    IF NOT FOUND OR r.fence IS DISTINCT FROM p_fence OR r.attempt IS DISTINCT FROM p_attempt
        OR coalesce(v_now >= r.forget_at, false) THEN
        RETURN 'lease-lost';
    END IF;
    IF p_how = 'renew' THEN
        IF r.state <> 1 THEN
            RETURN 'lease-lost';
        END IF;
        UPDATE semel.records SET open_at = semel.later(v_now, p_for_ms) WHERE key = p_key AND scope = p_scope;
        RETURN 'done';
    END IF;
    CASE
        WHEN r.state = 1 THEN
            NULL;
        -- The truth may follow the owner's own park, and what a claim found exhausted meanwhile.
        WHEN p_how IN ('complete', 'release')
            AND (r.state = 4 OR (r.state = 5 AND p_attempt <> ALL (r.spent))) THEN
            NULL;
        -- A forgotten outcome is compared no more, swept or not.
        WHEN r.state = 3 AND p_how = 'complete' THEN
            IF v_now >= r.replay_until OR r.outcome_format IS NULL
                OR (r.outcome_format = p_format
                    AND EXISTS (SELECT FROM semel.outcomes WHERE record = r.id AND bytes = p_outcome)) THEN
                RETURN 'done';
            END IF;
            RETURN 'refused';
        WHEN (r.state = 2 AND p_how = 'release') OR (r.state = 4 AND p_how = 'park')
            OR (r.state = 5 AND p_how = 'bury') THEN
            RETURN 'done';
        ELSE
            RETURN 'refused';
    END CASE;
    CASE p_how
        WHEN 'complete' THEN
            v_until := semel.later(v_now, p_for_ms);
            UPDATE semel.records
                SET state = 3, since = v_now, doubt = false, replay_until = v_until,
                    forget_at = greatest(v_until, semel.later(v_now, p_remember_ms)), outcome_format = p_format,
                    open_at = NULL, was = NULL, settles = NULL, once = NULL, cause = NULL
                WHERE key = p_key AND scope = p_scope;
            INSERT INTO semel.outcomes (record, bytes) VALUES (r.id, p_outcome);
        WHEN 'release' THEN
            IF p_unbind AND r.bound_by = r.fence THEN
                r.algorithm := NULL; r.digest := NULL;
            END IF;
            IF r.state = 1 AND r.settles THEN
                r.doubt := false;
                r.attempts := CASE WHEN r.was = 4 THEN 0 ELSE r.attempts END;
            ELSIF NOT p_ran THEN
                r.attempts := greatest(r.attempts - 1, 0);
            END IF;
            v_until := semel.later(v_now, p_for_ms);
            UPDATE semel.records
                SET state = 2, since = v_now, doubt = r.doubt, attempts = r.attempts,
                    algorithm = r.algorithm, digest = r.digest, not_before = v_until,
                    forget_at = greatest(v_until, semel.later(v_now, p_remember_ms)),
                    open_at = NULL, was = NULL, settles = NULL, once = NULL, cause = NULL
                WHERE key = p_key AND scope = p_scope;
        WHEN 'park' THEN
            UPDATE semel.records
                SET state = 4, since = v_now, open_at = v_now, cause = p_cause, was = NULL, settles = NULL, once = NULL
                WHERE key = p_key AND scope = p_scope;
        WHEN 'bury' THEN
            UPDATE semel.records
                SET state = 5, since = v_now, open_at = v_now, cause = p_cause, was = NULL, settles = NULL, once = NULL,
                    spent = semel.spend(r.spent, r.attempt)
                WHERE key = p_key AND scope = p_scope;
    END CASE;
    RETURN 'done';
END
$$;

-- Many claims in one statement, as a program's own connection makes them. What is new to the store goes in as a set,
-- in the order of the index, so that two batches never wait for each other crosswise; whatever else it is, row by row.
-- A key that stands there twice is inserted once, and the second is answered by the record that there is then.
-- A row that a long transaction of somebody else's holds stops the batch for the lock_timeout, not for ever.
CREATE FUNCTION semel.claim_many(
    p_scopes text[], p_keys text[], p_attempts uuid[], p_seen bigint[], p_forced boolean[],
    p_algorithms smallint[], p_digests bytea[], p_reruns boolean[], p_attempts_max bigint[],
    p_lease_ms bigint[], p_labels text[], p_inputs bytea[]
) RETURNS TABLE (
    n integer, claim text, fence bigint, attempts bigint, was text, doubt boolean,
    age_ms bigint, retry_after_ms bigint, cause text, bound_algorithm integer, format integer, outcome bytea
)
LANGUAGE plpgsql VOLATILE ROWS 100
SET enable_seqscan = off SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
    v_now   bigint := semel.clock();
    v_fresh integer[] := '{}';
    v_n     integer;
BEGIN
    IF cardinality(p_keys) > 1 THEN
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest(p_scopes, p_keys, p_attempts, p_seen, p_algorithms, p_digests, p_lease_ms, p_labels,
                p_inputs) WITH ORDINALITY AS one (scope, key, attempt, seen, algorithm, digest, ms, label, input, n)
        ), inserted AS (
            INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, algorithm, digest, bound_by,
                    doubt, first_at, since, label, input, open_at, was, settles)
                SELECT key, scope, 1, 1, attempt, 1, algorithm, digest, 1,
                       false, v_now, v_now, label, input, semel.later(v_now, ms), 0, false
                FROM asked WHERE seen IS NULL
                ORDER BY key COLLATE "C", scope COLLATE "C"
                ON CONFLICT (key, scope) DO NOTHING
                RETURNING key, scope, attempt
        )
        SELECT coalesce(array_agg(n::integer), '{}') INTO v_fresh FROM asked JOIN inserted USING (key, scope, attempt);
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
        RETURN QUERY SELECT v_n, one.* FROM semel.claim_one(p_scopes[v_n], p_keys[v_n], p_attempts[v_n], p_seen[v_n],
            p_forced[v_n], p_algorithms[v_n], p_digests[v_n], p_reruns[v_n], p_attempts_max[v_n], p_lease_ms[v_n],
            p_labels[v_n], p_inputs[v_n], 0) AS one;
    END LOOP;
END
$$;

-- Many fenced writes in one statement. What completes a running record is one set; whatever else it is goes row by row.
-- The plan of the set may not depend on how large the table was when it was made: it goes by the key's index.
CREATE FUNCTION semel.settle_many(
    p_scopes text[], p_keys text[], p_fences bigint[], p_attempts uuid[], p_hows text[],
    p_formats smallint[], p_outcomes bytea[], p_for_ms bigint[], p_remember_ms bigint[],
    p_unbinds boolean[], p_rans boolean[], p_causes text[]
) RETURNS TABLE (n integer, answer text)
LANGUAGE plpgsql VOLATILE ROWS 100
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
    v_now  bigint := semel.clock();
    v_done integer[] := '{}';
    v_n    integer;
BEGIN
    IF cardinality(p_keys) > 1 THEN
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest(p_scopes, p_keys, p_fences, p_attempts, p_hows, p_formats, p_outcomes, p_for_ms,
                p_remember_ms) WITH ORDINALITY
                AS one (scope, key, fence, attempt, how, format, outcome, for_ms, remember_ms, n)
            WHERE how = 'complete'
            ORDER BY key COLLATE "C", scope COLLATE "C"
        ), done AS (
            UPDATE semel.records AS r
                SET state = 3, since = v_now, doubt = false, replay_until = semel.later(v_now, for_ms),
                    forget_at = semel.later(v_now, greatest(for_ms, remember_ms)), outcome_format = format,
                    open_at = NULL, was = NULL, settles = NULL, once = NULL, cause = NULL
                FROM asked
                WHERE r.key = asked.key AND r.scope = asked.scope AND r.fence = asked.fence
                    AND r.attempt = asked.attempt AND r.state = 1
                RETURNING r.id, asked.n, asked.outcome
        ), kept AS (
            INSERT INTO semel.outcomes (record, bytes) SELECT id, outcome FROM done
        )
        SELECT coalesce(array_agg(n::integer), '{}') INTO v_done FROM done;
        RETURN QUERY SELECT one, 'done'::text FROM unnest(v_done) AS one;
        IF cardinality(v_done) = cardinality(p_keys) THEN
            RETURN;
        END IF;
    END IF;
    FOR v_n IN
        SELECT i FROM generate_subscripts(p_keys, 1) AS i WHERE i <> ALL (v_done)
        ORDER BY p_keys[i] COLLATE "C", p_scopes[i] COLLATE "C"
    LOOP
        n := v_n;
        answer := semel.settle_one(p_scopes[v_n], p_keys[v_n], p_fences[v_n], p_attempts[v_n], p_hows[v_n],
            p_formats[v_n], p_outcomes[v_n], p_for_ms[v_n], p_remember_ms[v_n], p_unbinds[v_n], p_rans[v_n],
            p_causes[v_n]);
        RETURN NEXT;
    END LOOP;
END
$$;

-- One call alone, of a program's own connection: as claim_many and settle_many, without sets.
CREATE FUNCTION semel.claim_alone(
    p_scope text, p_key text, p_attempt uuid, p_seen bigint, p_force boolean, p_algorithm smallint, p_digest bytea,
    p_rerun boolean, p_attempts_max bigint, p_lease_ms bigint, p_label text, p_input bytea
) RETURNS semel.answer
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
BEGIN
    RETURN semel.claim_one(p_scope, p_key, p_attempt, p_seen, p_force, p_algorithm, p_digest, p_rerun, p_attempts_max,
        p_lease_ms, p_label, p_input, 0);
END
$$;

CREATE FUNCTION semel.settle_alone(
    p_scope text, p_key text, p_fence bigint, p_attempt uuid, p_how text, p_format smallint, p_outcome bytea,
    p_for_ms bigint, p_remember_ms bigint, p_unbind boolean, p_ran boolean, p_cause text
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
BEGIN
    RETURN semel.settle_one(p_scope, p_key, p_fence, p_attempt, p_how, p_format, p_outcome, p_for_ms, p_remember_ms,
        p_unbind, p_ran, p_cause);
END
$$;

-- What follows is for any language, in its own transaction.

CREATE FUNCTION semel.hash(scope text, key text) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT hashtextextended(key || chr(1) || scope, 5995) $$;

CREATE FUNCTION semel.no_twin(twin text) RETURNS integer
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RAISE EXCEPTION 'twin is ''wait'' or ''refuse'', not %', coalesce(quote_literal(twin), 'NULL')
        USING ERRCODE = 'invalid_parameter_value';
END
$$;

-- Waits until no other open transaction has claimed the key, or looks whether one has; gives how the claim goes on
-- (claim_one: twin). The lock goes with the transaction, so a pooler does no harm. Two keys that share the 64 bits of
-- the hash merely wait for each other.
CREATE FUNCTION semel.hold(scope text, key text, twin text) RETURNS integer
LANGUAGE sql VOLATILE
AS $$
    SELECT CASE twin
        WHEN 'wait' THEN CASE WHEN pg_advisory_xact_lock(semel.hash(scope, key)) IS NOT NULL THEN 0 END
        WHEN 'refuse' THEN CASE WHEN pg_try_advisory_xact_lock(semel.hash(scope, key)) THEN 1 ELSE 2 END
        ELSE semel.no_twin(twin)
    END
$$;

-- One look for both: it is made for every claim.
CREATE FUNCTION semel.are_names(scope text, key text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT octet_length(scope) BETWEEN 1 AND 255 AND octet_length(key) BETWEEN 1 AND 255
        AND (scope || key) COLLATE "C" !~ '[\u0001-\u001f\u007f-\u009f]'
$$;
-- Whether somebody may claim with these; refuse_claim says why not.
CREATE FUNCTION semel.may_claim(
    scope text, key text, attempt uuid, fingerprint bytea, lease_ms bigint, rerun boolean, attempts_max bigint,
    label text, algorithm integer
) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(semel.are_names(scope, key) AND octet_length(fingerprint) = 32
        AND octet_length(label) <= 200 AND algorithm BETWEEN 0 AND 255
        AND num_nulls(attempt, lease_ms, rerun, attempts_max) = 0, false)
$$;

CREATE FUNCTION semel.refuse_claim(scope text, key text) RETURNS semel.answer
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF semel.are_names(scope, key) IS NOT TRUE THEN
        RAISE EXCEPTION 'a scope and a key have 1 to 255 bytes each and no control characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RAISE EXCEPTION 'a claim has an attempt, a fingerprint of 32 bytes, a lease in milliseconds and a label of at most 200 bytes'
        USING ERRCODE = 'invalid_parameter_value';
END
$$;

CREATE FUNCTION semel.claim(
    scope text, key text, attempt uuid, fingerprint bytea,
    lease_ms bigint DEFAULT 30000, rerun boolean DEFAULT false, attempts_max bigint DEFAULT 4294967295,
    label text DEFAULT '', input bytea DEFAULT NULL, algorithm integer DEFAULT 1, twin text DEFAULT 'wait'
) RETURNS semel.answer
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF semel.may_claim(scope, key, attempt, fingerprint, lease_ms, rerun, attempts_max, label, algorithm) THEN
        RETURN semel.claim_one(scope, key, attempt, NULL, false, algorithm::smallint, fingerprint, rerun, attempts_max,
            lease_ms, label, input, semel.hold(scope, key, twin));
    END IF;
    RETURN semel.refuse_claim(scope, key);
END
$$;

CREATE FUNCTION semel.claim_to_settle(
    scope text, key text, attempt uuid, seen bigint,
    lease_ms bigint DEFAULT 30000, force boolean DEFAULT false, twin text DEFAULT 'wait',
    OUT claim text, OUT fence bigint, OUT attempts bigint, OUT was text, OUT doubt boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF attempt IS NULL OR seen IS NULL OR lease_ms IS NULL OR force IS NULL THEN
        RAISE EXCEPTION 'a claim that settles has an attempt, the fence that was seen and a lease in milliseconds'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT CASE one.claim WHEN 'acquired' THEN one.claim ELSE 'moved' END, one.fence, one.attempts,
           one.was, one.doubt
        INTO claim, fence, attempts, was, doubt
        FROM semel.claim_one(scope, key, attempt, seen, force, NULL, NULL, false, 0, lease_ms, '', NULL,
            semel.hold(scope, key, twin)) AS one;
END
$$;

-- An error, so that a transaction whose lease is lost cannot commit what it did by overlooking an answer.
CREATE FUNCTION semel.must(answer text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF answer = 'lease-lost' THEN
        RAISE EXCEPTION 'the lease is lost: the record has another owner' USING ERRCODE = 'SM001';
    ELSIF answer IS DISTINCT FROM 'done' THEN
        RAISE EXCEPTION 'the attempt was already settled otherwise' USING ERRCODE = 'SM002';
    END IF;
END
$$;

CREATE FUNCTION semel.renew(scope text, key text, fence bigint, attempt uuid, lease_ms bigint DEFAULT 30000)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_answer text;
BEGIN
    v_answer := semel.settle_one(scope, key, fence, attempt, 'renew', NULL, NULL,
        greatest(lease_ms, 0), NULL, NULL, NULL, NULL);
    IF v_answer IS DISTINCT FROM 'done' THEN
        PERFORM semel.must(v_answer);
    END IF;
END
$$;

CREATE FUNCTION semel.complete(
    scope text, key text, fence bigint, attempt uuid, outcome bytea,
    replay_ms bigint DEFAULT 86400000, remember_ms bigint DEFAULT 2592000000, format integer DEFAULT 0
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_answer text;
BEGIN
    IF outcome IS NULL OR replay_ms IS NULL OR remember_ms IS NULL OR format IS NULL OR format NOT BETWEEN 0 AND 255 THEN
        RAISE EXCEPTION 'a completion has an outcome, two times in milliseconds and a format'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_answer := semel.settle_one(scope, key, fence, attempt, 'complete', format::smallint, outcome,
        replay_ms, remember_ms, NULL, NULL, NULL);
    IF v_answer IS DISTINCT FROM 'done' THEN
        PERFORM semel.must(v_answer);
    END IF;
END
$$;

CREATE FUNCTION semel.release(
    scope text, key text, fence bigint, attempt uuid,
    not_before_ms bigint DEFAULT 0, remember_ms bigint DEFAULT 2592000000,
    unbind boolean DEFAULT false, ran boolean DEFAULT true
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_answer text;
BEGIN
    v_answer := semel.settle_one(scope, key, fence, attempt, 'release', NULL, NULL,
        coalesce(not_before_ms, 0), coalesce(remember_ms, 2592000000), coalesce(unbind, false), coalesce(ran, true),
        NULL);
    IF v_answer IS DISTINCT FROM 'done' THEN
        PERFORM semel.must(v_answer);
    END IF;
END
$$;

CREATE FUNCTION semel.park(scope text, key text, fence bigint, attempt uuid, cause text DEFAULT 'said') RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_answer text;
BEGIN
    v_answer := semel.settle_one(scope, key, fence, attempt, 'park', NULL, NULL, NULL, NULL, NULL, NULL,
        coalesce(left(cause, 100), 'said'));
    IF v_answer IS DISTINCT FROM 'done' THEN
        PERFORM semel.must(v_answer);
    END IF;
END
$$;

CREATE FUNCTION semel.bury(scope text, key text, fence bigint, attempt uuid, cause text DEFAULT 'rejected') RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_answer text;
BEGIN
    v_answer := semel.settle_one(scope, key, fence, attempt, 'bury', NULL, NULL, NULL, NULL, NULL, NULL,
        coalesce(left(cause, 100), 'rejected'));
    IF v_answer IS DISTINCT FROM 'done' THEN
        PERFORM semel.must(v_answer);
    END IF;
END
$$;

-- One statement, so one snapshot of the record and its outcome. Writes nothing.
CREATE FUNCTION semel.find(scope text, key text)
RETURNS TABLE (
    state text, fence bigint, attempt uuid, attempts bigint, label text, cause text,
    age_ms bigint, since_ms bigint, left_ms bigint, format integer, outcome bytea
)
LANGUAGE sql VOLATILE ROWS 1
AS $$
    SELECT
        CASE
            WHEN r.state = 1 AND now >= r.open_at THEN 'unknown'
            WHEN r.state = 3 AND (r.outcome_format IS NULL OR now >= r.replay_until) THEN 'forgotten'
            ELSE ('{running,released,completed,unknown,dead}'::text[])[r.state]
        END,
        r.fence, r.attempt, r.attempts, r.label,
        CASE WHEN r.state = 1 AND now >= r.open_at THEN 'lapsed' ELSE r.cause END,
        greatest(now - r.first_at, 0),
        greatest(now - CASE
            WHEN r.state = 1 AND now >= r.open_at THEN r.open_at
            WHEN r.state = 3 AND now >= r.replay_until THEN r.replay_until
            ELSE r.since
        END, 0),
        CASE
            WHEN r.state = 1 AND now < r.open_at THEN r.open_at - now
            WHEN r.state = 2 THEN greatest(r.not_before - now, 0)
        END,
        CASE WHEN now < r.replay_until THEN r.outcome_format END,
        CASE WHEN now < r.replay_until THEN o.bytes END
    FROM (SELECT semel.clock() AS now OFFSET 0) AS clock
        JOIN semel.records AS r ON r.key = find.key AND r.scope = find.scope
        LEFT JOIN semel.outcomes AS o ON o.record = r.id AND r.outcome_format IS NOT NULL
    WHERE r.forget_at IS NULL OR now < r.forget_at
$$;

COMMENT ON FUNCTION semel.fingerprint(text[]) IS
'SHA-256 over parts, each with its length before it, so that no two lists of parts look alike: for claim(fingerprint).';
COMMENT ON FUNCTION semel.claim(text, text, uuid, bytea, bigint, boolean, bigint, text, bytea, integer, text) IS
'Decides whether this attempt may run. claim is ''acquired'' (run, then complete, release, park or bury with this fence and attempt), ''in-flight'' (ask again after retry_after_ms), ''completed'' (answer with outcome), ''mismatch'' (the key is bound to another fingerprint, made by bound_algorithm), ''unknown'' (an attempt may have taken effect), ''dead'' (given up) or ''forgotten'' (done; the outcome is gone). attempt is new and random for each attempt, and the same for each repetition of one call. twin: with ''wait'' the call waits until another open transaction with this key ends; with ''refuse'' it answers ''in-flight'' at once. Above READ COMMITTED a conflict is the error 40001: repeat the transaction.';
COMMENT ON FUNCTION semel.claim_to_settle(text, text, uuid, bigint, bigint, boolean, text) IS
'Takes what an earlier attempt left unknown or dead, or with force what runs, if its fence is still the one seen: ''acquired'', else ''moved''. End it with complete, release, park or bury.';
COMMENT ON FUNCTION semel.renew(text, text, bigint, uuid, bigint) IS
'Extends the lease to lease_ms from now. Error SM001: the lease is lost.';
COMMENT ON FUNCTION semel.complete(text, text, bigint, uuid, bytea, bigint, bigint, integer) IS
'Ends the attempt with an outcome, which every retry gets for replay_ms; the key is remembered for remember_ms. Error SM001: the lease is lost, SM002: it was settled otherwise. Either must roll the transaction back.';
COMMENT ON FUNCTION semel.release(text, text, bigint, uuid, bigint, bigint, boolean, boolean) IS
'Ends the attempt without effect: the key may be claimed again, not before not_before_ms. unbind also forgets the fingerprint, if this claim bound it. ran = false: nothing ran, so the attempt is not counted. Errors SM001, SM002.';
COMMENT ON FUNCTION semel.park(text, text, bigint, uuid, text) IS
'Ends the attempt as unknown: nobody can tell whether it took effect. Errors SM001, SM002.';
COMMENT ON FUNCTION semel.bury(text, text, bigint, uuid, text) IS
'Ends all attempts: tried often enough, or impossible for good. Errors SM001, SM002.';
COMMENT ON FUNCTION semel.find(text, text) IS
'The record as it reads now: no row where there is none. For people and for answers, never for a decision.';
COMMENT ON FUNCTION semel.claim_one(text, text, uuid, bigint, boolean, smallint, bytea, boolean, bigint, bigint, text, bytea, integer, boolean) IS
'Of claim, once and claim_to_settle. Not an interface.';
COMMENT ON FUNCTION semel.claim_known(text, text, uuid, bigint, boolean, smallint, bytea, boolean, bigint, bigint, text, bytea, integer, boolean) IS
'Of claim_one. Not an interface.';
COMMENT ON FUNCTION semel.may_claim(text, text, uuid, bytea, bigint, boolean, bigint, text, integer) IS
'Of claim and once. Not an interface.';
COMMENT ON TYPE semel.answer IS 'What claim and once answer.';
COMMENT ON FUNCTION semel.settle_known(text, text, bigint, uuid, text, smallint, bytea, bigint, bigint, boolean, boolean, text) IS
'Of settle_one. Not an interface.';
COMMENT ON FUNCTION semel.settle_one(text, text, bigint, uuid, text, smallint, bytea, bigint, bigint, boolean, boolean, text) IS
'Of renew, complete, release, park and bury. Not an interface.';
COMMENT ON FUNCTION semel.claim_many(text[], text[], uuid[], bigint[], boolean[], smallint[], bytea[], boolean[], bigint[], bigint[], text[], bytea[]) IS
'For Semel''s programs. Not an interface.';
COMMENT ON FUNCTION semel.claim_alone(text, text, uuid, bigint, boolean, smallint, bytea, boolean, bigint, bigint, text, bytea) IS
'For Semel''s programs. Not an interface.';
COMMENT ON FUNCTION semel.settle_alone(text, text, bigint, uuid, text, smallint, bytea, bigint, bigint, boolean, boolean, text) IS
'For Semel''s programs. Not an interface.';
COMMENT ON FUNCTION semel.settle_many(text[], text[], bigint[], uuid[], text[], smallint[], bytea[], bigint[], bigint[], boolean[], boolean[], text[]) IS
'For Semel''s programs. Not an interface.';
