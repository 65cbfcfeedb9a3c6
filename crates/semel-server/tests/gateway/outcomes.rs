//! Which answers are kept, which release the key, and which leave it unknown: H11.

use crate::assert::{metric, refused, replayed, unknown};
use crate::support::{Call, Gateway, Plan, Reply, Service};

/// A service that answers with the status in the path, `/s/418`, and says `Semel-Outcome` as the query does.
fn by_path() -> (Service, Gateway) {
    let service = Service::start(|received| {
        let (path, said) = received.target.split_once('?').unwrap_or((&received.target, ""));
        let status = path.trim_start_matches("/s/").parse().expect("a status in the path");
        let reply = Reply::new(status, format!("answer to attempt {}", received.earlier + 1));
        let reply = if said.is_empty() { reply } else { reply.header("Semel-Outcome", said) };
        Plan { reply, ..Plan::default() }
    });
    let gateway = Gateway::start(service.address(), &[]);
    (service, gateway)
}

fn call(target: &str) -> Call {
    Call::post(target, target.trim_matches('/')).body("amount=1")
}

#[test]
fn h11_final_answers_are_kept_also_those_that_refuse_the_request() {
    let (service, gateway) = by_path();
    let kept = [
        200, 201, 202, 203, 206, 226, 301, 302, 307, 308, 400, 402, 404, 405, 410, 411, 413, 415, 418, 422,
        451,
    ];
    for status in kept {
        let (first, _) = replayed(&gateway, &call(&format!("/s/{status}")));
        assert_eq!(first.status, status);
    }
    assert_eq!(service.ledger().received_count(), kept.len());
}

#[test]
fn h11_what_took_no_effect_releases_the_key() {
    let (service, gateway) = by_path();
    let released = [401, 403, 407, 408, 409, 421, 423, 425, 429, 500, 501, 503];
    for status in released {
        let call = call(&format!("/s/{status}"));
        for attempt in 1..=2 {
            let answer = gateway.call(&call);
            assert_eq!((answer.status, answer.is_replay()), (status, false));
            assert_eq!(
                answer.text(),
                format!("answer to attempt {attempt}"),
                "{status}: the service's own answer"
            );
        }
    }
    assert_eq!(service.ledger().received_count(), 2 * released.len());
    assert!(
        gateway.operator().keys().iter().all(|record| record.state == "released" && record.attempts == 2)
    );
}

#[test]
fn h11_what_may_have_taken_effect_is_unknown() {
    let (service, gateway) = by_path();
    let unsure = [502, 504, 505, 520, 524, 599, 600, 999];
    for status in unsure {
        let call = call(&format!("/s/{status}"));
        let own = gateway.call(&call);
        refused(&own, 502, "outcome-unknown", true, "unknown");
        assert_eq!(own.json()["upstream_status"], status);
        unknown(&gateway.call(&call));
        let record = gateway.operator().show(&format!("s/{status}")).expect("a record");
        assert_eq!((record.state.as_str(), record.cause), ("unknown", format!("status-{status}")));
    }
    assert_eq!(service.ledger().received_count(), unsure.len(), "nothing ran again");
}

#[test]
fn h11_the_service_may_say_itself_what_its_answer_means() {
    let (service, gateway) = by_path();
    for (target, status) in
        [("/s/503?keep", 503), ("/s/500?keep", 500), ("/s/429?keep", 429), ("/s/502?keep", 502)]
    {
        let (first, again) = replayed(&gateway, &call(target));
        assert_eq!(
            (first.status, first.header("semel-outcome"), again.header("semel-outcome")),
            (status, None, None)
        );
    }
    for (target, status) in [("/s/201?release", 201), ("/s/422?release", 422), ("/s/502?release", 502)] {
        for _ in 0..2 {
            let answer = gateway.call(&call(target));
            assert_eq!(
                (answer.status, answer.is_replay(), answer.header("semel-outcome")),
                (status, false, None)
            );
        }
    }
    for target in ["/s/201?unknown", "/s/500?unknown"] {
        refused(&gateway.call(&call(target)), 502, "outcome-unknown", true, "unknown");
        unknown(&gateway.call(&call(target)));
    }
    assert_eq!(service.ledger().received_count(), 4 + 6 + 2);
}

#[test]
fn h11_a_word_that_is_none_of_these_is_not_guessed_at() {
    let (_service, gateway) = by_path();
    let (_, again) = replayed(&gateway, &call("/s/201?kept"));
    assert_eq!(again.header("semel-outcome"), None);
    assert_eq!(gateway.call(&call("/s/500?kept")).status, 500);
    assert!(!gateway.call(&call("/s/500?kept")).is_replay());
}

#[test]
fn h11_semel_outcome_is_removed_from_what_passes_by_too() {
    let (_service, gateway) = by_path();
    assert_eq!(gateway.call(&Call::new("GET", "/s/200?keep")).header("semel-outcome"), None);
    assert_eq!(gateway.call(&Call::new("POST", "/s/200?keep")).header("semel-outcome"), None);
}

#[test]
fn c93_a_failure_that_passes_is_not_pinned_to_the_key() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let call = Call::post("/charges", "once-down").body("amount=1");
    service.next(Plan::without_effect(503));
    assert_eq!(gateway.call(&call).status, 503);
    let second = gateway.call(&call);
    assert_eq!((second.status, second.is_replay()), (201, false));
    assert!(gateway.call(&call).is_replay());
    assert_eq!(service.ledger().effects("once-down"), 1);
    assert_eq!(metric(&gateway, "semel_settlements_total", "how=\"released\""), 1.0);
}

#[test]
fn c59_whatever_the_service_answers_one_request_is_sent_once() {
    let (service, gateway) = by_path();
    for status in [500, 502, 503, 504] {
        let before = service.ledger().received_count();
        gateway.call(&call(&format!("/s/{status}")));
        assert_eq!(service.ledger().received_count(), before + 1, "{status}");
        gateway.call(&Call::new("POST", &format!("/s/{status}")));
        assert_eq!(service.ledger().received_count(), before + 2, "{status} without a key");
    }
}

#[test]
fn c59_a_proxy_in_front_that_resends_gets_one_effect() {
    let service = Service::doing(Plan { delay: std::time::Duration::from_millis(300), ..Plan::default() });
    let gateway = Gateway::start(service.address(), &[]);
    let call = Call::post("/payouts", "resent").body("amount=1");
    let sends = [0, 1, 2].map(|_| {
        let answer = gateway.call_aside(&call);
        service.ledger().wait_received(1);
        answer
    });
    let answers = sends.map(|send| send.join().unwrap());
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    answers.iter().filter(|answer| answer.status != 201).for_each(crate::assert::in_flight);
    assert!(gateway.call(&call).is_replay());
    assert_eq!(service.ledger().effects("resent"), 1);
}
