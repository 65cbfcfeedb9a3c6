//! The store cannot be opened: that is said within a time, with what to do, and without the password.

use std::net::TcpListener;
use std::time::Instant;

use semel::testing::sample::{complete, run};
use semel_store::{ConnectError, Options, connect};
use semel_testbed::{Fault, Kind, Plan, at_address};

use crate::place::{Place, acquire, bounded, opened, patiently, try_open, until};

/// What is said, within the time.
async fn refused(url: &str) -> String {
    let asked = Instant::now();
    let error = try_open(url).await.expect_err("it is not opened");
    bounded(asked);
    assert!(matches!(error, ConnectError::Unavailable(_)), "{error:?}");
    let said = format!("{error} {error:?}");
    assert!(!said.contains("semel-test") && !said.contains("wr0ng"), "a password: {said}");
    error.to_string()
}

pub(crate) async fn a_wrong_password_is_said_at_once_and_not_shown(kind: Kind) {
    let place = Place::own(kind).await;
    let said = refused(&place.wrong_password("wr0ng").await).await;
    assert!(said.contains("password"), "{said}");
}

pub(crate) async fn an_unreachable_host_is_said_within_the_time(kind: Kind) {
    let place = Place::shared(kind).await;
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    refused(&at_address(place.database.url(), nobody)).await;
    let unknown = place.database.url().replace(&place.database.addr().to_string(), "no-such-host.invalid:1");
    refused(&unknown).await;
}

pub(crate) async fn a_host_that_takes_connections_and_is_silent_is_said_within_the_time(kind: Kind) {
    let place = Place::shared(kind).await;
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    refused(&at_address(place.database.url(), silent.local_addr().expect("its address"))).await;
    // The same in the midst of the greeting.
    place.proxy.arm_plan(Plan::of(Fault::Blackhole).always());
    refused(&place.url()).await;
}

pub(crate) async fn a_server_that_has_no_connection_left_says_so_and_serves_those_that_it_has(kind: Kind) {
    let place = Place::with(kind, Place::narrow(kind)).await;
    let store = place.open().await;
    // Claims and settlements may have connections of their own: both are there.
    let warm = acquire(&store, &run("warm", 1)).await;
    patiently!(store.settle(&warm, &complete("done")));
    let lease = acquire(&store, &run("before", 1)).await;
    let mut held = Vec::new();
    while let Some(one) = place.database.hold().await {
        held.push(one);
    }
    refused(place.database.url()).await;
    patiently!(store.settle(&lease, &complete("done")));
    held.clear();
    until("there is room again", async || try_open(place.database.url()).await.is_ok()).await;
}

pub(crate) async fn a_newer_schema_is_refused_and_left_alone(kind: Kind) {
    let place = Place::shared(kind).await;
    let store = opened(place.database.url()).await;
    let lease = acquire(&store, &run("before", 1)).await;
    if place.make_newer().await.is_none() {
        // It has no schema: there is nothing to migrate, ever.
        let schema = semel_store::migrations(place.database.url()).expect("a schema");
        assert_eq!(schema.pending().await.expect("a look"), []);
        return;
    }
    for migrate in [false, true] {
        let options = Options { migrate, ..Options::default() };
        let error = connect(place.database.url(), &options).await.expect_err("a newer schema");
        assert!(matches!(error, ConnectError::Newer { found: 900, .. }), "{error:?}");
        assert!(error.to_string().contains("use a newer program"), "{error}");
    }
    let schema = semel_store::migrations(place.database.url()).expect("a schema");
    assert!(matches!(schema.migrate().await, Err(ConnectError::Newer { found: 900, .. })));
    // A program that already runs is not disturbed.
    patiently!(store.settle(&lease, &complete("done")));
}
