//! PostgreSQL, through statements that are prepared once, with BEGIN and COMMIT in the claim's and the completion's round
//! trips.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use semel::testing::sample;
use semel::{
    Claim, CommitError, InTransaction, Once, Outcome, Settlement, TransactionError, Transactions, Twin,
};
use semel_store::postgres::{Clients, Statements, complete_and_commit};
use semel_testbed::{Fault, Proxy};
use tokio_postgres::Client;

use crate::operation::operation;
use crate::postgres::{Place, connect};

const EFFECT: &str = "INSERT INTO effect (name) VALUES ($1)";

async fn prepared(place: &Place) -> (Client, Statements) {
    let client = connect(place.database.url()).await;
    let statements = Statements::prepare(&client).await.expect("prepared");
    (client, statements)
}

#[tokio::test]
async fn x1_prepared_effect_and_outcome_are_committed_together_and_replayed() {
    let place = Place::new().await;
    let (mut client, statements) = prepared(&place).await;
    let Once::Run(run) =
        statements.once(&mut client, &operation("key"), Twin::Refuse).await.expect("an answer")
    else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
    assert!(place.effects().await.is_empty(), "nothing is seen before the commit");
    complete_and_commit(run, "receipt").await.expect("committed");
    assert_eq!(place.effects().await, ["paid"]);
    let Once::Replay { outcome, tx, .. } =
        statements.once(&mut client, &operation("key"), Twin::Refuse).await.expect("an answer")
    else {
        panic!("done")
    };
    assert_eq!(outcome, Outcome::value("receipt"));
    tx.execute(EFFECT, &[&"beside"]).await.expect("an effect");
    tx.commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid", "beside"]);
}

#[tokio::test]
async fn a_prepared_run_that_is_dropped_never_was_and_its_connection_goes_on() {
    let place = Place::new().await;
    let (mut client, statements) = prepared(&place).await;
    for _ in 0..2 {
        let Once::Run(run) =
            statements.once(&mut client, &operation("key"), Twin::Refuse).await.expect("an answer")
        else {
            panic!("new")
        };
        run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
        drop(run);
    }
    client.execute(EFFECT, &[&"by itself"]).await.expect("no transaction is open");
    assert_eq!(place.effects().await, ["by itself"]);
    assert_eq!(place.outcome("key").await, None);
}

#[tokio::test]
async fn a_commit_behind_a_completion_that_fails_rolls_back() {
    let place = Place::new().await;
    let (mut client, statements) = prepared(&place).await;
    let Once::Run(run) =
        statements.once(&mut client, &operation("key"), Twin::Refuse).await.expect("an answer")
    else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
    run.execute("UPDATE semel.records SET fence = 7", &[]).await.expect("the lease is somebody else's");
    let error = complete_and_commit(run, "receipt").await.expect_err("refused");
    assert!(matches!(error, CommitError::RolledBack(semel::TransactionError::LeaseLost)), "{error:?}");
    assert!(place.effects().await.is_empty() && place.outcome("key").await.is_none());
}

#[tokio::test]
async fn a_claim_that_has_lost_its_begin_is_not_committed() {
    let place = Place::new().await;
    let claim = "SELECT semel.once('s', 'k', gen_random_uuid(), sha256('x'))";
    let refused = place.control.batch_execute(claim).await.expect_err("it is not completed");
    assert_eq!(refused.code().map(|code| code.code()), Some("SM003"));
    assert_eq!(place.database.run("SELECT count(*) FROM semel.records").await.trim(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lost_answer_of_a_commit_is_told_as_unanswered() {
    let place = Place::new().await;
    let proxy = Proxy::before(place.database.addr());
    let mut client = connect(&place.database.url_at(proxy.addr())).await;
    let statements = Statements::prepare(&client).await.expect("prepared");
    let Once::Run(run) =
        statements.once(&mut client, &operation("key"), Twin::Refuse).await.expect("an answer")
    else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
    let armed = proxy.arm_on(Fault::CutAfterAnswer, "COMMIT");
    let error = complete_and_commit(run, "receipt").await.expect_err("the answer is lost");
    assert!(matches!(error, CommitError::Unanswered(_)), "{error:?}");
    armed.happened().await;
    let seen = place.outcome("key").await.is_some();
    assert_eq!(place.effects().await.len(), usize::from(seen), "effect and outcome together");
}

/// What BEGIN leaves when it fails, by a cancellation that comes late, say: no transaction, and nobody has looked.
#[tokio::test]
async fn m3_a_completed_claim_behind_a_begin_that_failed_is_refused_and_writes_nothing() {
    for is_prepared in [false, true] {
        let place = Place::new().await;
        let (client, statements) = prepared(&place).await;
        let connection = Arc::new((client, statements));
        let taken = connection.clone();
        let clients = Clients::new(move || std::future::ready(Ok(taken.clone())).boxed(), |one| &one.0);
        let clients = if is_prepared { clients.prepared(|one| &one.1) } else { clients };
        let completed = Settlement::Complete {
            outcome: Outcome::value("done"),
            replay_for: Duration::from_secs(60),
            remember_for: Duration::from_secs(60),
        };
        let many = [sample::run("one", 1), sample::run("another", 2)];
        for requests in [&many[..1], &many] {
            let mut tx = clients.begin().await.expect("it is sent");
            connection.0.batch_execute("ROLLBACK").await.expect("no transaction any more");
            let refused = tx.claim_settled_in(requests, &completed).await;
            assert!(matches!(refused, Err(TransactionError::Refused(_))), "{refused:?}");
            drop(tx);
            let records =
                connection.0.query_one("SELECT count(*) FROM semel.records", &[]).await.expect("a count");
            assert_eq!(records.get::<_, i64>(0), 0, "prepared: {is_prepared}");
        }
        let mut tx = clients.begin().await.expect("it is sent");
        let claims = tx.claim_settled_in(&many, &completed).await.expect("claims");
        assert!(claims.iter().all(|claim| matches!(claim, Claim::Acquired(_))), "{claims:?}");
    }
}
