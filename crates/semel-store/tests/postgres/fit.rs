//! What the table of records itself refuses.

use super::harness::{control, open};

#[tokio::test]
async fn c94_a_running_record_without_an_end_of_its_lease_is_not_written() {
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

/// Nothing is equal to NULL, so nothing is unequal to it either.
#[tokio::test]
async fn a_settlement_without_a_fence_or_an_attempt_has_no_lease() {
    let database = semel_testbed::postgres().await;
    open(database.url()).await;
    let client = control(database.url()).await;
    client
        .batch_execute("SELECT semel.claim('s', 'k', gen_random_uuid(), sha256('x'))")
        .await
        .expect("a claim");
    let attempt = "(SELECT attempt FROM semel.records)";
    for (fence, attempt) in [("NULL", attempt), ("1", "NULL"), ("NULL", "NULL")] {
        for verb in [
            format!("semel.complete('s', 'k', {fence}, {attempt}, 'x')"),
            format!("semel.release('s', 'k', {fence}, {attempt})"),
            format!("semel.renew('s', 'k', {fence}, {attempt})"),
            format!("semel.park('s', 'k', {fence}, {attempt})"),
        ] {
            let error = client.batch_execute(&format!("SELECT {verb}")).await.expect_err("no lease");
            assert_eq!(error.code().map(|code| code.code()), Some("SM001"), "{verb}: {error}");
        }
    }
    let state = client.query_one("SELECT state, fence FROM semel.records", &[]).await.expect("a row");
    assert_eq!((state.get::<_, i16>(0), state.get::<_, i64>(1)), (1, 1));
}
