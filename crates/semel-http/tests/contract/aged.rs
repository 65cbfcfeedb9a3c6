//! How old a key may be (H15), by a clock that is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::StatusCode;
use semel::{Clock, Timestamp};

use crate::support::{Shop, post, respond};

/// Milliseconds since 1970.
#[derive(Debug)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A UUIDv7 (RFC 9562, section 5.7) of that time.
fn uuid_of(ms: i64, number: u16) -> String {
    let time = format!("{ms:012x}");
    format!("{}-{}-7000-8000-00000000{number:04x}", &time[..8], &time[8..])
}

#[tokio::test]
async fn h15_a_key_is_as_old_as_the_clock_that_is_handed_in_says() {
    // In 2024: not the machine's time, by which every key here is far too old.
    let born = 1_720_000_000_000;
    let clock = Arc::new(SetClock(AtomicI64::new(born)));
    let set = clock.clone();
    let shop = Shop::with(move |options| options.clock = set, |_, _| async { Ok(respond(201, &[], "done")) });
    for (number, later, status) in [
        (1, 0, StatusCode::CREATED),
        (2, 30 * DAY_MS - 1000, StatusCode::CREATED),
        (3, 31 * DAY_MS, StatusCode::GONE),
        (4, -2 * DAY_MS, StatusCode::GONE),
    ] {
        clock.0.store(born + later, Ordering::SeqCst);
        let answer = shop.send(post(&uuid_of(born, number))).await;
        assert_eq!(answer.status, status, "a key of {} ms", later);
        if status == StatusCode::GONE {
            assert_eq!((answer.code().as_str(), answer.effect().as_str()), ("key-expired", "unknown"));
        }
    }
    assert_eq!(shop.runs(), 2);
    // What is known is answered, however old it is.
    clock.0.store(born + 40 * DAY_MS, Ordering::SeqCst);
    assert!(shop.send(post(&uuid_of(born, 1))).await.is_replay());
}
