//! Keys that carry a time: H15.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::assert::{refused, replayed, states};
use crate::configured;
use crate::support::{Call, Service};

const DAY: u64 = 24 * 60 * 60 * 1000;

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis()).unwrap()
}

/// RFC 9562, section 5.7.
fn uuid7(millis: u64) -> String {
    format!("{:08x}-{:04x}-7abc-8def-0123456789ab", millis >> 16, millis & 0xffff)
}

fn ulid(millis: u64) -> String {
    let digits = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let time: String = (0..10)
        .rev()
        .map(|at| char::from(digits[usize::try_from(millis >> (5 * at) & 31).unwrap()]))
        .collect();
    time + "ABCDEFGHJKMNPQRS"
}

fn call(key: &str) -> Call {
    Call::post("/a", key).body("x")
}

#[test]
fn h15_a_key_that_is_older_than_it_would_be_remembered_is_refused() {
    let service = Service::plain();
    let gateway = configured(&service, "");
    replayed(&gateway, &call(&uuid7(now())));
    replayed(&gateway, &call(&uuid7(now() - 29 * DAY)));
    replayed(&gateway, &call(&uuid7(now() + DAY / 2)));
    for late in [uuid7(now() - 31 * DAY), uuid7(now() + 2 * DAY), uuid7(now() - 1000 * DAY)] {
        refused(&gateway.call(&call(&late)), 410, "key-expired", false, "unknown");
    }
    assert_eq!(
        (service.ledger().effects_count(), states(&gateway).len()),
        (3, 3),
        "nothing is left of a refused one"
    );
    // Random bytes in that shape, as Stripe's SDK for Python sends them, carry no time.
    replayed(&gateway, &call(&uuid7(0)));
    replayed(&gateway, &call(&uuid7(0x7a3b_5c7d_9e1f)));
    // A ULID only where it is declared to be one, and other versions of UUID carry no such time.
    assert_eq!(gateway.call(&call(&ulid(0))).status, 201);
    assert_eq!(gateway.call(&call("00000000-0000-4abc-8def-0123456789ab")).status, 201);
}

#[test]
fn h15_a_ulid_where_it_is_declared() {
    let service = Service::plain();
    let gateway = configured(&service, "ulid = true\n");
    replayed(&gateway, &call(&ulid(now())));
    refused(&gateway.call(&call(&ulid(now() - 31 * DAY))), 410, "key-expired", false, "unknown");
}

#[test]
fn h15_where_keys_are_remembered_for_ever_no_key_is_too_old() {
    let service = Service::plain();
    let gateway = configured(&service, "remember_for = \"forever\"\n");
    assert_eq!(gateway.call(&call(&uuid7(1))).status, 201);
}

/// A known record wins over age: the route now remembers for less, and the record is there all the same.
#[test]
fn h15_a_known_record_wins_over_age() {
    let service = Service::plain();
    let launch = crate::launch(service.address(), "");
    let gateway = launch.start();
    let key = uuid7(now() - 20 * DAY);
    let first = gateway.call(&call(&key));
    std::fs::write(launch.directory().join("semel.toml"), "remember_for = \"10d\"\n").unwrap();
    let gateway = gateway.restart();
    let again = gateway.call(&call(&key));
    assert!(again.is_replay());
    assert_eq!(again.body, first.body);
    refused(&gateway.call(&call(&uuid7(now() - 20 * DAY - 1))), 410, "key-expired", false, "unknown");
}
