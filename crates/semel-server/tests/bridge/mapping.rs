//! What becomes of a message, by what the service answers.

use std::time::{Duration, Instant};

use semel_messaging::Message;

use crate::bench::Bench;
use crate::support::{Plan, Reply, Service, until};

#[test]
fn m11_a_message_is_one_post_with_its_id_as_the_key() {
    let (bench, service) = (Bench::new(), Service::plain());
    let bridge = bench.start(service.address(), "headers = [\"traceparent\", \"tenant\"]");
    let mut order = Message::new(bench.queue.clone(), &b"{\"cents\":1}\n\xff\0"[..]).with_id("order \"7\"");
    order.content_type = Some("application/json".into());
    bench.send([order.with_header("tenant", "blue").with_header("secret", "s").with_header("Host", "evil")]);
    service.ledger().wait_effects(1);
    let received = service.ledger().last();
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/orders"));
    assert_eq!(received.body, b"{\"cents\":1}\n\xff\0");
    let header = |name| received.header(name);
    assert_eq!(header("idempotency-key"), Some("\"order \\\"7\\\"\""));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!((header("semel-attempt"), header("semel-subject")), (Some("1"), Some(bench.queue.as_str())));
    assert!(header("semel-fence").is_some());
    assert_eq!((header("tenant"), header("secret")), (Some("blue"), None));
    assert_eq!(header("host"), Some(service.address().to_string().as_str()));
    assert_eq!(received.header_lines("content-length"), [received.body.len().to_string().as_str()]);
    drop(bridge);
}

#[test]
fn m4_a_copy_is_acknowledged_and_not_sent() {
    let (bench, service) = (Bench::new(), Service::plain());
    let mut bridge = bench.start(service.address(), "");
    bench.send([bench.order("a"), bench.order("a"), bench.order("b")]);
    service.ledger().wait_effects(2);
    bridge.wait_for_log("duplicate acknowledged");
    until("an empty queue", || (bench.count(&bench.queue) == 0).then_some(()));
    assert_eq!(service.ledger().received_count(), 2);
    assert!(
        bridge
            .admin("/metrics")
            .text()
            .contains("semel_deliveries_total{result=\"duplicate\",consumer=\"billing\"} 1")
    );
}

#[test]
fn m5_what_can_never_succeed_is_a_dead_letter_with_the_services_own_words() {
    let (bench, service) = (Bench::new(), Service::plain());
    let answers =
        [(400, r#"{"detail":"no such account"}"#), (404, "nothing here"), (302, ""), (410, "\u{1b}[2Jgone")];
    service.set(move |received| {
        let (status, body) = answers[received.key().parse::<usize>().unwrap()];
        Plan {
            effect: false,
            reply: Reply::new(status, body).header("Location", "/elsewhere"),
            ..Plan::default()
        }
    });
    let _bridge = bench.start(service.address(), "");
    bench.send((0..4).map(|number| bench.order(&number.to_string())));
    bench.wait_dead(4);
    assert_eq!(service.ledger().received_count(), 4, "each was sent once, and no redirect is followed");
    let mut letters = bench.json(&["list"]);
    letters.sort_by_key(|letter| letter["id"].to_string());
    let said: Vec<_> = letters.iter().map(|letter| letter["said"].as_str().unwrap()).collect();
    assert!(said[0].starts_with("400") && said[0].ends_with(": no such account"), "{said:?}");
    assert!(said[1].ends_with(": nothing here") && said[2].starts_with("302"), "{said:?}");
    assert!(!said[3].contains('\u{1b}'), "{said:?}");
    assert!(
        letters.iter().all(|letter| letter["reason"] == "rejected" && letter["attempts"] == 1),
        "{letters:?}"
    );
}

#[test]
fn m5_what_took_no_effect_is_tried_again_and_not_before_retry_after() {
    let (bench, service) = (Bench::new(), Service::plain());
    for status in [408, 425, 429, 500, 409] {
        service.next(Plan::without_effect(status));
    }
    let wait = Reply::new(503, "later").header("Retry-After", "2");
    service.next(Plan { effect: false, reply: wait, ..Plan::default() });
    let _bridge = bench.start(service.address(), "retry_first = \"1ms\"\nlane = \"message-id\"");
    bench.send([bench.order("a")]);
    service.ledger().wait_received(6);
    let asked = Instant::now();
    service.ledger().wait_effects(1);
    assert!(asked.elapsed() > Duration::from_millis(1_900), "{:?}", asked.elapsed());
    let attempts: Vec<_> = service
        .ledger()
        .received()
        .iter()
        .map(|one| one.header("semel-attempt").unwrap().to_owned())
        .collect();
    assert_eq!(attempts, ["1", "2", "3", "4", "5", "6", "7"]);
    let keys: std::collections::BTreeSet<_> =
        service.ledger().received().iter().map(|one| one.key().to_owned()).collect();
    assert_eq!(keys.len(), 1, "the same key each time");
    assert_eq!(bench.count(&bench.dead_letters()), 0);
}

#[test]
fn m5_poison_ends_among_the_dead_letters_and_holds_up_nobody_else() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.set(|received| match received.key() {
        "poison" => Plan { effect: false, reply: Reply::new(500, "stack trace"), ..Plan::default() },
        _ => Plan::default(),
    });
    let _bridge = bench.start(
        service.address(),
        "attempts_max = 3\nretry_first = \"1ms\"\nlane = \"header:account\"\nin_flight_max = 1",
    );
    let order = |id, account: &str| bench.order(id).with_header("account", account.to_owned());
    bench.send([order("poison", "x"), order("behind", "x"), order("other", "y")]);
    bench.wait_dead(1);
    service.ledger().wait_effects(2);
    let [letter] = &bench.json(&["list"])[..] else { panic!("one dead letter") };
    assert_eq!(
        (letter["id"].as_str(), letter["reason"].as_str()),
        (Some("poison"), Some("attempts-exhausted"))
    );
    let history = letter["history"].as_array().unwrap();
    assert!(history.len() == 3 && history[2].as_str().unwrap().contains("stack trace"), "{letter}");
    let received: Vec<_> = service.ledger().received().iter().map(|one| one.key().to_owned()).collect();
    let of_lane: Vec<_> = received.iter().filter(|key| *key != "other").cloned().collect();
    assert_eq!(of_lane, ["poison", "poison", "poison", "behind"], "the lane keeps its order");
}

#[test]
fn k7_what_may_have_taken_effect_is_parked_among_the_dead_letters_with_its_cause() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.set(|received| match received.key() {
        "cut" => Plan { cut_after: Some(0), ..Plan::default() },
        "timeout" => Plan { hang: true, ..Plan::default() },
        "status-502" => Plan { reply: Reply::new(502, ""), ..Plan::default() },
        _ => Plan { reply: Reply::new(200, "").header("Semel-Outcome", "unknown"), ..Plan::default() },
    });
    let _bridge = bench.start(service.address(), "timeout = \"1s\"");
    let causes = ["cut", "timeout", "status-502", "said"];
    bench.send(causes.map(|id| bench.order(id)));
    bench.wait_dead(4);
    assert_eq!(service.ledger().received_count(), 4, "never silently twice");
    let letters = bench.json(&["list"]);
    assert!(letters.iter().all(|letter| letter["reason"] == "outcome-unknown"), "{letters:?}");
    for cause in causes {
        let record = bench.operator().show(cause).expect("a record");
        assert_eq!((record.state.as_str(), record.cause.as_str()), ("unknown", cause));
        let letter = letters.iter().find(|letter| letter["id"] == cause).expect("its letter");
        assert!(letter["said"].as_str().unwrap().contains(cause), "{letter}");
    }
}

#[test]
fn k7_rerun_sends_it_again_under_the_same_key() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    let _bridge = bench.start(service.address(), "on_unknown = \"rerun\"");
    bench.send([bench.order("a")]);
    service.ledger().wait_effects(2);
    assert_eq!(service.ledger().effects("a"), 2, "at least once: the service has the key to tell");
}

#[test]
fn m2_bodies_and_ids_of_every_kind() {
    let (bench, service) = (Bench::new(), Service::plain());
    let _bridge = bench.start(service.address(), "id = \"json:/id\"\nbody_bytes_max = \"11MiB\"");
    let message = |body: Vec<u8>| Message::new(bench.queue.clone(), body);
    let large = format!("{{\"id\":\"large\",\"filling\":\"{}\"}}", "x".repeat(10 << 20));
    bench.send([
        message(b"\xff\xfe".to_vec()),
        message(b"not json".to_vec()),
        message(b"{\"id\":{}}".to_vec()),
        message(vec![b'x'; 12 << 20]),
        message(large.clone().into_bytes()),
        message("{\"id\":\"Bestellung-ä\"}".as_bytes().to_vec()),
    ]);
    service.ledger().wait_effects(2);
    bench.wait_dead(4);
    let mut reasons: Vec<_> =
        bench.json(&["list"]).iter().map(|letter| letter["reason"].as_str().unwrap().to_owned()).collect();
    reasons.sort();
    assert_eq!(reasons, ["body-too-large", "key-missing", "key-missing", "key-missing"]);
    assert_eq!(service.ledger().bodies("large")[0], large.into_bytes());
    let other = service.ledger().received().iter().map(|one| one.key().to_owned()).find(|key| key != "large");
    assert!(other.expect("the other one").is_ascii());
}

#[test]
fn m4_the_same_id_with_another_payload_is_a_dead_letter() {
    let (bench, service) = (Bench::new(), Service::plain());
    let _bridge = bench.start(service.address(), "");
    bench.send([bench.order("a"), Message::new(bench.queue.clone(), "another").with_id("a")]);
    bench.wait_dead(1);
    service.ledger().wait_effects(1);
    assert_eq!(bench.json(&["list"])[0]["reason"], "key-reused");
}
