//! What goes in comes out again: keys, outcomes, times.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::{Harness, Trial};
use crate::fingerprint::{Algorithm, Fingerprint};
use crate::key::{Key, Scope};
use crate::store::{Cause, Claim, ClaimRequest, Label, Outcome, Purpose, Settlement, View, Was};
use crate::testing::random::Random;
use crate::testing::sample::{LEASE, REMEMBER, REPLAY, complete, fingerprint, key, park, run, scope};

async fn outcome_of(trial: &Trial<'_>, key: &str) -> Outcome {
    match trial.claim(&run(key, 99)).await {
        Claim::Completed { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

fn completed_with(outcome: Outcome) -> Settlement {
    Settlement::Complete { outcome, replay_for: REPLAY, remember_for: REMEMBER }
}

/// Two keys of the greatest length that differ in the last byte only are two keys, and so are two scopes.
pub async fn c89_long_keys_are_apart_in_their_last_byte(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let long = |last: &str| "k".repeat(Key::BYTES_MAX - 1) + last;
    trial.ended(&run(&long("a"), 1), &complete("a")).await;
    assert_eq!(trial.acquire(&run(&long("b"), 2)).await.was, Was::New);
    let wide = "é".repeat(Key::BYTES_MAX / 2);
    trial.ended(&run(&wide, 1), &complete("wide")).await;
    assert_eq!(outcome_of(&trial, &wide).await, Outcome::value("wide"));
    for last in ["a", "b"] {
        let scope = Scope::new("s".repeat(Scope::BYTES_MAX - 1) + last).expect("a scope");
        assert_eq!(trial.acquire(&ClaimRequest { scope, ..run("k", 1) }).await.was, Was::New);
    }
}

/// Keys that look alike to people or to a database's collation are different keys.
pub async fn keys_are_compared_byte_for_byte(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let alike = [
        "order",
        "ORDER",
        "Order",
        "order ",
        " order",
        "order  ",
        "orde_",
        "orde%",
        "%",
        "_",
        "*",
        "ordér",
        "orde\u{301}r",
        "straße",
        "strasse",
        "STRASSE",
        "ﬁ",
        "fi",
        "İ",
        "i",
        "I",
        "ı",
        "0",
        "00",
        "0.0",
        "-0",
        "null",
        "NULL",
        "''",
        "'",
        "\"",
        "\\",
        "\\\\",
        "a\u{a0}b",
        "a b",
        "а",
        "a",
        "\u{feff}a",
        "a\u{200b}",
    ];
    let distinct: BTreeSet<_> = alike.iter().collect();
    assert_eq!(distinct.len(), alike.len());
    for text in alike {
        let lease = trial.acquire(&run(text, 1)).await;
        assert_eq!((lease.was, lease.key.as_str()), (Was::New, text));
        trial.end(&lease, &complete(text)).await;
    }
    for text in alike {
        assert_eq!(outcome_of(&trial, text).await, Outcome::value(text.to_owned()), "{text:?}");
        assert_eq!(trial.entry(text).await.key.as_str(), text);
    }
}

/// Every character that a key may hold is kept as it is, whatever it means to a database.
pub async fn every_allowed_character_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let texts = [
        "a'b",
        "a\"b",
        "a`b",
        "a;b",
        "a--b",
        "a/*b*/",
        "a\\b",
        "a\\0b",
        "a$1b",
        "a?b",
        "a:b",
        "a{b}",
        "a[b]",
        "a|b",
        "a,b",
        "a=b",
        "a&b",
        "a#b",
        "a@b",
        "$$",
        "'; DROP TABLE records; --",
        "🦀",
        "𝕏",
        "日本語",
        "العربية",
        "a\u{202e}b",
        "\u{10ffff}",
        "\u{fffd}",
        "a\tb",
    ];
    for text in texts.into_iter().filter(|text| Key::new(text).is_ok()) {
        let request = ClaimRequest { label: Label::new(text), input: Some(text.into()), ..run(text, 1) };
        trial.ended(&request, &park()).await;
        let entry = trial.entry(text).await;
        assert_eq!((entry.key.as_str(), entry.label.as_str()), (text, text));
        assert_eq!(entry.input, Some(text.into()));
    }
    let open = trial.store.unsettled(None, 1_000).await.expect("a list");
    let listed: BTreeSet<_> = open.iter().map(|entry| entry.key.as_str()).collect();
    assert!(texts.iter().filter(|text| Key::new(text).is_ok()).all(|text| listed.contains(text)));
}

/// So are scopes, and no pair of scope and key runs into another.
pub async fn scopes_are_compared_byte_for_byte(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b"),
        ("A", "b"),
        ("a ", "b"),
        ("b", "a"),
        ("a%", "b"),
        ("ab", "c"),
    ];
    for (scope_text, key_text) in pairs {
        let scope = Scope::new(scope_text).expect("a scope");
        let lease = trial.acquire(&ClaimRequest { scope, ..run(key_text, 1) }).await;
        assert_eq!((lease.was, lease.scope.as_str()), (Was::New, scope_text), "{key_text}");
    }
}

/// An outcome of a mebibyte that does not compress, and one of two that does.
pub async fn a_large_outcome_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let random = Random::new(1);
    let noise: Vec<u8> = (0..131_072).flat_map(|_| random.next().to_le_bytes()).collect();
    let (noise, plain) = (Outcome::value(noise), Outcome::value(vec![b'a'; 2 * 1_048_576]));
    assert_eq!(noise.bytes.len(), 1_048_576);
    let lease = trial.ended(&run("noise", 1), &completed_with(noise.clone())).await;
    trial.ended(&run("plain", 1), &completed_with(plain.clone())).await;
    assert!(outcome_of(&trial, "noise").await == noise, "the bytes are others");
    assert!(outcome_of(&trial, "plain").await == plain, "the bytes are others");
    trial.end(&lease, &completed_with(noise)).await;
}

/// No bytes are an outcome too, and are not "forgotten".
pub async fn an_empty_outcome_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &completed_with(Outcome::value(Bytes::new()))).await;
    assert_eq!(outcome_of(&trial, "k").await, Outcome::value(Bytes::new()));
}

/// Outcomes are bytes, not text.
pub async fn every_byte_of_an_outcome_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let bytes: Vec<u8> = (0..=255).collect();
    trial.ended(&run("k", 1), &completed_with(Outcome::value(bytes.clone()))).await;
    assert_eq!(outcome_of(&trial, "k").await.bytes, bytes);
}

/// The format is part of the outcome, up to its largest number.
pub async fn the_format_of_an_outcome_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for format in [Outcome::VALUE, Outcome::HTTP, 127, 128, 255] {
        let outcome = Outcome { format, bytes: Bytes::from_static(b"same") };
        let key = format!("k{format}");
        trial.ended(&run(&key, 1), &completed_with(outcome.clone())).await;
        assert_eq!(outcome_of(&trial, &key).await, outcome);
    }
}

/// The algorithm is part of the fingerprint: a mismatch says how the record's was made.
pub async fn the_algorithm_of_a_fingerprint_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let digest = fingerprint("same").digest;
    for algorithm in [Algorithm(0), Algorithm(2), Algorithm(255)] {
        let key = format!("k{}", algorithm.0);
        let made = Fingerprint { algorithm, digest };
        let purpose = Purpose::Run { fingerprint: made, rerun: false, attempts_max: 1 };
        trial.acquire(&ClaimRequest { purpose, ..run(&key, 1) }).await;
        assert_eq!(trial.entry(&key).await.fingerprint, Some(made));
        assert_eq!(trial.claim(&run(&key, 2)).await, Claim::Mismatch { algorithm });
    }
}

/// Label and input are kept from the claim that bound the key; no input is not an empty one.
pub async fn label_and_input_are_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let bytes: Vec<u8> = (0..=255).collect();
    for (key, input) in [("none", None), ("empty", Some(Bytes::new())), ("bytes", Some(Bytes::from(bytes)))] {
        let label = Label::new("é".repeat(Label::BYTES_MAX));
        trial.acquire(&ClaimRequest { label: label.clone(), input: input.clone(), ..run(key, 1) }).await;
        let entry = trial.entry(key).await;
        assert_eq!((entry.label, entry.input), (label, input), "{key}");
    }
    let unlabelled = ClaimRequest { label: Label::default(), ..run("unlabelled", 1) };
    trial.acquire(&unlabelled).await;
    assert_eq!(trial.entry("unlabelled").await.label, Label::default());
}

/// A cause is kept as it is, up to its greatest length.
pub async fn a_cause_is_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (number, text) in ["", "it's \"so\"", &"é".repeat(Cause::BYTES_MAX)].into_iter().enumerate() {
        let (key, cause) = (format!("k{number}"), Cause::new(text));
        trial.ended(&run(&key, 1), &Settlement::Park { cause: cause.clone() }).await;
        assert_eq!(trial.entry(&key).await.view, View::Unknown { cause });
    }
}

/// Times too long to count are "for ever", in leases and in backoffs too.
pub async fn large_times_are_kept(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&ClaimRequest { lease_for: Duration::MAX, ..run("k", 1) }).await;
    trial.advance(REMEMBER * 10_000).await;
    trial.answers(&run("k", 2), "in-flight").await;
    trial.store.renew(&lease, Duration::MAX).await.expect("the holder renews");
    let backoff = Settlement::Release {
        not_before: Some(Duration::MAX),
        unbind: false,
        ran: true,
        remember_for: Duration::ZERO,
    };
    trial.end(&lease, &backoff).await;
    trial.advance(LEASE).await;
    trial.answers(&run("k", 2), "in-flight").await;
}

/// Another process reads what this one wrote, fingerprint included.
pub async fn c117_another_handle_reads_the_same(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.ended(&run("k", 1), &complete("done")).await;
    let elsewhere = Trial { harness, store: harness.reopen().await };
    let found =
        elsewhere.store.find(&scope(), &key("k")).await.expect("a record is read").expect("it is there");
    assert_eq!((found.fingerprint, found.fence), (Some(fingerprint("same")), lease.fence));
    assert_eq!(outcome_of(&elsewhere, "k").await, Outcome::value("done"));
    elsewhere.end(&lease, &complete("done")).await;
}
