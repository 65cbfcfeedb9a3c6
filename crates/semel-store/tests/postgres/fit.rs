//! What a row may be is said twice: by the CHECKs of the table, and by `semel.is_fit`, which takes their place where there
//! are functions.

use super::harness::{control, open};

const RECORDS: &str = include_str!("../../src/migrations/postgres/0001_records.sql");

/// The table's own CHECKs as one condition, which is null for what they let pass for want of a value.
const CHECKS: &str = "SELECT string_agg(substr(pg_get_constraintdef(oid), 6), ' AND ') FROM pg_constraint \
     WHERE conrelid = 'semel.records'::regclass AND contype = 'c'";

/// Each column that may be null with and without a value, in each state; then each other rule at its limits.
const ROWS: &str = "
    SELECT 'k' AS key, 's' AS scope, 1::bigint AS fence, state::smallint AS state, was::smallint AS was, settles,
        algorithm::smallint AS algorithm, digest, open_at::bigint AS open_at, not_before::bigint AS not_before,
        replay_until::bigint AS replay_until, forget_at::bigint AS forget_at, format::smallint AS outcome_format, cause
    FROM generate_series(0, 6) AS state, (VALUES (NULL), (0)) AS a (was), (VALUES (NULL), (false)) AS b (settles),
        (VALUES (NULL, NULL), (1, sha256('x'))) AS c (algorithm, digest), (VALUES (NULL), (1)) AS d (open_at),
        (VALUES (NULL), (1)) AS e (not_before), (VALUES (NULL), (1)) AS f (replay_until),
        (VALUES (NULL), (1)) AS g (forget_at), (VALUES (NULL), (0)) AS h (format), (VALUES (NULL), ('said')) AS i (cause)
    UNION ALL
    SELECT repeat('k', keys), repeat('s', scopes), fence, 1::smallint, was, true, algorithm, digest, 1, NULL, NULL, NULL, NULL, NULL
    FROM unnest('{0,1,255,256}'::int[]) AS keys, unnest('{0,1,255,256}'::int[]) AS scopes,
        unnest('{-1,0,1}'::bigint[]) AS fence, unnest('{-1,0,5,6}'::smallint[]) AS was,
        unnest('{NULL,1}'::smallint[]) AS algorithm, unnest(ARRAY[NULL, '', sha256('x'), sha512('x')]) AS digest
    UNION ALL
    SELECT 'k', 's', 1, state::smallint, was, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, 'said'
    FROM generate_series(4, 5) AS state, unnest('{-1,0,5,6}'::smallint[]) AS was";

const FIT: &str = "semel.is_fit(key, scope, fence, algorithm, digest, state, was, settles, open_at, not_before, \
     replay_until, forget_at, outcome_format, cause)";

#[tokio::test]
async fn c94_is_fit_and_the_checks_of_the_table_let_the_same_rows_pass() {
    let plain = semel_testbed::postgres().await;
    plain.run(&format!("CREATE SCHEMA semel; {RECORDS}")).await;
    let checks: String = control(plain.url()).await.query_one(CHECKS, &[]).await.expect("the CHECKs").get(0);

    let database = semel_testbed::postgres().await;
    open(database.url()).await;
    let sql = format!(
        "SELECT count(*) FILTER (WHERE passes AND {FIT}), count(*) FILTER (WHERE NOT passes AND NOT {FIT}), count(*) \
         FROM (SELECT *, coalesce({checks}, true) AS passes FROM ({ROWS}) AS row) AS row"
    );
    let counts = control(database.url()).await.query_one(&sql, &[]).await.expect("counts");
    let (both, neither, all): (i64, i64, i64) = (counts.get(0), counts.get(1), counts.get(2));
    assert!(both > 20 && neither > 2_000, "{both} rows pass and {neither} do not: too few to compare");
    assert_eq!(both + neither, all, "some rows pass one and not the other");
}

#[tokio::test]
async fn c94_a_row_that_is_not_fit_is_not_written() {
    let database = semel_testbed::postgres().await;
    open(database.url()).await;
    let client = control(database.url()).await;
    client
        .batch_execute("SELECT semel.claim('s', 'k', gen_random_uuid(), sha256('x'))")
        .await
        .expect("a claim");
    let error = client.execute("UPDATE semel.records SET open_at = NULL", &[]).await.expect_err("not fit");
    assert_eq!(error.code().map(|code| code.code()), Some("23514"), "{error}");
}
