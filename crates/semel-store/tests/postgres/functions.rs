//! The functions as any language calls them, in its own transaction.

use tokio_postgres::{Client, Row};

use super::blocked;
use super::harness::{control, open};

const CLAIM: &str = "SELECT claim, fence, attempts, retry_after_ms, outcome FROM semel.claim('orders', $1::text, \
     gen_random_uuid(), semel.fingerprint('POST', '/orders'), twin => $2::text)";

const COMPLETE: &str = "SELECT semel.complete('orders', r.key, r.fence, r.attempt, 'done') FROM semel.records AS r \
     WHERE r.scope = 'orders' AND r.key = $1";

async fn two() -> (semel_testbed::Database, Client, Client) {
    let database = semel_testbed::postgres().await;
    open(database.url()).await;
    let (one, other) = (control(database.url()).await, control(database.url()).await);
    (database, one, other)
}

async fn claim(client: &Client, key: &str, twin: &str) -> Row {
    client.query_one(CLAIM, &[&key, &twin]).await.expect("a claim is answered")
}

fn word(row: &Row) -> &str {
    row.get(0)
}

#[tokio::test]
async fn x1_key_and_effect_commit_or_roll_back_together() {
    let (_database, one, other) = two().await;
    one.batch_execute("CREATE TABLE orders (id text)").await.expect("a table");
    for end in ["ROLLBACK", "COMMIT"] {
        one.batch_execute("BEGIN").await.expect("begun");
        assert_eq!(word(&claim(&one, "k", "wait").await), "acquired", "before {end}");
        one.batch_execute("INSERT INTO orders VALUES ('k')").await.expect("the effect");
        one.execute(COMPLETE, &[&"k"]).await.expect("completed");
        one.batch_execute(end).await.expect("ended");
    }
    let again = claim(&other, "k", "wait").await;
    assert_eq!((word(&again), again.get::<_, Vec<u8>>(4)), ("completed", b"done".to_vec()));
    assert_eq!(
        other.query_one("SELECT count(*) FROM orders", &[]).await.expect("a count").get::<_, i64>(0),
        1
    );
}

#[tokio::test]
async fn c19_a_duplicate_does_not_abort_the_callers_transaction() {
    let (_database, one, other) = two().await;
    one.batch_execute("CREATE TABLE orders (id text)").await.expect("a table");
    claim(&other, "k", "wait").await;
    one.batch_execute("BEGIN; INSERT INTO orders VALUES ('before')").await.expect("begun");
    assert_eq!(word(&claim(&one, "k", "wait").await), "in-flight");
    one.batch_execute("INSERT INTO orders VALUES ('after'); COMMIT").await.expect("committed");
    assert_eq!(
        other.query_one("SELECT count(*) FROM orders", &[]).await.expect("a count").get::<_, i64>(0),
        2
    );
}

#[tokio::test]
async fn x3_refuse_tells_at_once_and_wait_waits() {
    let (database, one, other) = two().await;
    one.batch_execute("BEGIN").await.expect("begun");
    assert_eq!(word(&claim(&one, "k", "refuse").await), "acquired");
    // A transaction may ask twice.
    assert_eq!(word(&claim(&one, "k", "refuse").await), "in-flight");
    let refused = claim(&other, "k", "refuse").await;
    assert_eq!((word(&refused), refused.get::<_, i64>(3)), ("in-flight", 1000));
    let waiting = tokio::spawn(async move { (claim(&other, "k", "wait").await, other) });
    let watch = control(database.url()).await;
    blocked(&watch, 1, "advisory").await;
    one.execute(COMPLETE, &[&"k"]).await.expect("completed");
    one.batch_execute("COMMIT").await.expect("committed");
    let (row, other) = waiting.await.expect("no panic");
    assert_eq!(word(&row), "completed");
    // Somebody who only reads the outcome, in an open transaction, keeps nobody from reading it.
    one.batch_execute("BEGIN").await.expect("begun");
    assert_eq!(word(&claim(&one, "k", "refuse").await), "completed");
    assert_eq!(word(&claim(&other, "k", "refuse").await), "completed");
}

#[tokio::test]
async fn x4_above_read_committed_a_conflict_is_40001() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (_database, one, other) = two().await;
        one.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1")).await.expect("begun");
        // The snapshot is there; then another one claims.
        one.query_one("SELECT count(*) FROM semel.records", &[]).await.expect("a snapshot");
        claim(&other, "k", "wait").await;
        let error = one.query_one(CLAIM, &[&"k", &"wait"]).await.expect_err("a conflict");
        assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{level}");
        one.batch_execute("ROLLBACK").await.expect("ended");
        assert_eq!(word(&claim(&one, "k", "wait").await), "in-flight");
    }
}

#[tokio::test]
async fn a_lease_that_is_lost_is_an_error_of_its_own() {
    let (_database, one, _other) = two().await;
    claim(&one, "k", "wait").await;
    let sql = "SELECT semel.complete('orders', 'k', 2, gen_random_uuid(), 'x')";
    let error = one.batch_execute(sql).await.expect_err("lost");
    assert_eq!(error.code().map(|code| code.code()), Some("SM001"));
    one.execute(COMPLETE, &[&"k"]).await.expect("completed");
    let sql = "SELECT semel.complete('orders', 'k', 1, attempt, 'other') FROM semel.records";
    let error = one.batch_execute(sql).await.expect_err("settled");
    assert_eq!(error.code().map(|code| code.code()), Some("SM002"));
    for wrong in [
        "SELECT semel.claim('orders', '', gen_random_uuid(), semel.fingerprint('x'))",
        "SELECT semel.claim('orders', 'a' || chr(10), gen_random_uuid(), semel.fingerprint('x'))",
        "SELECT semel.claim('orders', repeat('k', 256), gen_random_uuid(), semel.fingerprint('x'))",
        "SELECT semel.claim('orders', 'k', gen_random_uuid(), 'short')",
        "SELECT semel.claim('orders', 'k', gen_random_uuid(), semel.fingerprint('x'), twin => 'maybe')",
    ] {
        let error = one.batch_execute(wrong).await.expect_err(wrong);
        assert_eq!(error.code().map(|code| code.code()), Some("22023"), "{wrong}");
    }
}

#[tokio::test]
async fn the_fingerprint_of_sql_is_that_of_rust() {
    let (_database, one, _other) = two().await;
    let row = one.query_one("SELECT semel.fingerprint('ab', '', 'ü')", &[]).await.expect("a digest");
    let here = semel::Fingerprint::builder(semel::Algorithm::EXACT)
        .part(b"ab")
        .part(b"")
        .part("ü".as_bytes())
        .finish();
    assert_eq!(row.get::<_, Vec<u8>>(0), here.digest);
}

#[tokio::test]
async fn each_function_says_what_it_is() {
    let (_database, one, _other) = two().await;
    let sql = "SELECT coalesce(string_agg(proname, ' '), '') FROM pg_proc WHERE pronamespace = 'semel'::regnamespace \
               AND obj_description(oid, 'pg_proc') IS NULL \
               AND proname IN ('claim', 'claim_to_settle', 'renew', 'complete', 'release', 'park', 'bury', 'find', 'fingerprint')";
    assert_eq!(one.query_one(sql, &[]).await.expect("a list").get::<_, &str>(0), "");
}
