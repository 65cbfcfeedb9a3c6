//! What is written is what is read.

use bytes::Bytes;
use semel::record::{Record, SPENT_MAX, State};
use semel::{AttemptId, Cause, Fence, Label, Outcome, Timestamp, Was};

use super::*;

fn instant(random: &Random) -> Timestamp {
    *random.pick(&[
        Timestamp(0),
        Timestamp(1),
        Timestamp(1_750_000_000_000),
        Timestamp(i64::MAX - 1),
        Timestamp::NEVER,
    ])
}

fn bytes(random: &Random) -> Bytes {
    (0..random.below(2_000)).map(|_| random.next() as u8).collect()
}

fn state(random: &Random) -> State {
    let was = *random.pick(&[Was::New, Was::Released, Was::Lapsed, Was::Unknown, Was::Dead, Was::Running]);
    let cause = random.pick(&[Cause::LAPSED, Cause::new(""), Cause::new("ünsure\n")]).clone();
    match random.below(5) {
        0 => State::Running { until: instant(random), was, settles: random.chance(50) },
        1 => State::Released { not_before: instant(random), forget_at: instant(random) },
        2 => State::Completed {
            outcome: random.chance(70).then(|| Outcome { format: random.next() as u8, bytes: bytes(random) }),
            replay_until: instant(random),
            forget_at: instant(random),
        },
        3 => State::Unknown { cause },
        _ => State::Dead { cause },
    }
}

pub(super) fn record(random: &Random) -> Record {
    let spent = *random.pick(&[0, 1, 2, SPENT_MAX as u64]);
    Record {
        fence: Fence(*random.pick(&[1, 2, i64::MAX as u64])),
        attempt: sample::attempt(random.next()),
        spent: (0..spent).map(|_| AttemptId::random(&random.entropy())).collect(),
        attempts: *random.pick(&[0, 1, u32::MAX]),
        fingerprint: random.chance(80).then(|| sample::fingerprint("what")),
        bound_by: Fence(1),
        doubt: random.chance(50),
        first_at: instant(random),
        since: instant(random),
        label: Label::new(*random.pick(&["", "POST /charges", "ü\0"])),
        input: random.chance(30).then(|| bytes(random)),
        state: state(random),
    }
}

/// Case C117: nothing that was bound at the claim is lost by a later write, whatever the two writes are.
#[test]
fn c117_any_record_reads_back_as_it_was_written_over_any_other() {
    let fresh = Fresh::new();
    let connection = fresh.other();
    let (scope, key) = (sample::scope(), sample::key("k"));
    each_seed(300, |seed| {
        let random = Random::new(seed);
        let old = rows::load(&connection, &scope, &key).expect("it reads");
        let new = record(&random);
        rows::Rows::of(&connection)
            .expect("statements")
            .save(&scope, &key, old.as_ref(), &new)
            .expect("it writes");
        let read = rows::load(&connection, &scope, &key).expect("it reads").expect("it is there");
        assert_eq!(read.record, new);
        assert_eq!(in_both_tables(&connection), 1, "it is in one of the tables");
        let is_settled = matches!(read.place, rows::Place::Settled(_));
        assert_eq!(is_settled, !matches!(new.state, State::Running { .. }), "and in the right one");
        assert!(is_noted(&connection), "no sweep misses it");
    });
}

fn in_both_tables(connection: &Connection) -> u32 {
    let sql = "SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM settled)";
    connection.query_row(sql, [], |row| row.get(0)).expect("a count")
}

/// Each row that will free something is in a block that is due by then.
pub(super) fn is_noted(connection: &Connection) -> bool {
    let sql = "SELECT count(*) FROM settled LEFT JOIN due ON block = id >> 6
         WHERE sweep_at IS NOT NULL AND (due_at IS NULL OR due_at > sweep_at)";
    connection.query_row(sql, [], |row| row.get::<_, u32>(0)).expect("a count") == 0
}

/// Migration 2 makes the same hashes of the same scopes, and every file holds them.
#[test]
fn the_hash_of_a_scope_stays_what_it_is() {
    for (scope, hash) in [
        ("", 0),
        ("a", 1_627_429_043),
        ("http:default:anonymous", 684_201_558),
        ("\u{e4}\u{10ffff}", 1_945_633_777),
    ] {
        assert_eq!(rows::hash(scope), hash, "{scope}");
    }
    assert!(rows::hash(&"\u{10ffff}".repeat(63)) >= 0);
}

#[test]
fn what_no_record_looks_like_is_refused_when_it_is_read() {
    let fresh = Fresh::new();
    let connection = fresh.other();
    let (scope, key) = (sample::scope(), sample::key("k"));
    let random = Random::new(1);
    let completed = State::Completed {
        outcome: Some(Outcome::value("done")),
        replay_until: Timestamp(2),
        forget_at: Timestamp(3),
    };
    rows::Rows::of(&connection)
        .expect("statements")
        .save(&scope, &key, None, &Record { state: completed, ..record(&random) })
        .expect("it writes");
    let lacks = |what: &str| {
        connection.pragma_update(None, "ignore_check_constraints", true).expect("a pragma");
        connection.execute(&format!("UPDATE settled SET {what} = NULL"), []).expect("it updates");
        connection.pragma_update(None, "ignore_check_constraints", false).expect("a pragma");
    };
    lacks("outcome");
    rows::load(&connection, &scope, &key).expect_err("a kept outcome without its bytes is not an empty one");
    lacks("outcome_format");
    rows::load(&connection, &scope, &key).expect("without one it reads");
    for damage in [
        "UPDATE settled SET fence = -1",
        "UPDATE settled SET attempt = x'00'",
        "UPDATE settled SET spent = x'00'",
        "UPDATE settled SET state = 6",
        "UPDATE settled SET state = 1",
        "UPDATE settled SET digest = x'00'",
        "UPDATE settled SET algorithm = NULL, digest = zeroblob(32)",
        "UPDATE settled SET attempts = 'many'",
        "UPDATE settled SET outcome = x'00'",
        "UPDATE settled SET scope_hash = -1",
    ] {
        connection.execute(damage, []).expect_err("the schema refuses it");
    }
    connection.pragma_update(None, "ignore_check_constraints", true).expect("a pragma");
    for (damage, repair) in [
        ("fence = -1", "fence = 1"),
        ("attempt = x'00'", "attempt = zeroblob(16)"),
        ("spent = x'00'", "spent = x''"),
        ("state = 6", "state = 3"),
        ("state = 1", "state = 3"),
        ("state = 5", "state = 3"),
        ("algorithm = 1, digest = x'00'", "algorithm = NULL, digest = NULL"),
    ] {
        let set = |what| connection.execute(&format!("UPDATE settled SET {what}"), []).expect("it updates");
        set(damage);
        rows::load(&connection, &scope, &key).expect_err(damage);
        set(repair);
        rows::load(&connection, &scope, &key).expect(repair);
    }
}

/// Case C94.
#[test]
fn c94_a_running_row_without_a_lease_cannot_be_written() {
    let fresh = Fresh::new();
    let insert = |until: &str| {
        let sql = format!(
            "INSERT INTO running (key, scope, fence, attempt, spent, attempts, bound_by, doubt, first_at, since, label,
                lease_until, was, settles)
             VALUES ('k', 's', 1, zeroblob(16), x'', 1, 1, 0, 1, 1, '', {until}, 0, 0)"
        );
        fresh.other().execute(&sql, [])
    };
    let refused = insert("NULL").expect_err("no lease");
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation));
    insert("0").expect("a lease that has lapsed is one");
}

#[tokio::test]
async fn c94_a_lease_of_zero_has_lapsed_at_once() {
    let fresh = Fresh::new();
    let mut request = sample::run("k", 1);
    request.lease_for = Duration::ZERO;
    took(fresh.store.claim(&request).await);
    assert_eq!(sample::name(&fresh.store.claim(&sample::run("k", 2)).await.unwrap()), "unknown");
    assert_eq!(fresh.store.unsettled(None, 10).await.unwrap().len(), 1);
    took(fresh.store.claim(&sample::rerun("k", 3)).await);
}

/// Case C89: the longest key and the longest scope, and two that differ in the last byte only.
#[tokio::test]
async fn c89_keys_of_255_bytes_are_kept_apart() {
    let fresh = Fresh::new();
    let scope = Scope::new("s".repeat(Scope::BYTES_MAX)).unwrap();
    for (number, end) in [(1, "a"), (2, "b"), (3, "\u{e4}")] {
        let key = "k".repeat(Key::BYTES_MAX - end.len()) + end;
        let request = semel::ClaimRequest { scope: scope.clone(), ..sample::run(&key, number) };
        let lease = sample::lease(fresh.store.claim(&request).await.unwrap());
        fresh.store.settle(&lease, &sample::complete(&key)).await.unwrap();
        let again = semel::ClaimRequest { attempt: sample::attempt(number + 100), ..request };
        let Claim::Completed { outcome, .. } = fresh.store.claim(&again).await.unwrap() else {
            panic!("no replay")
        };
        assert_eq!(outcome.bytes, key);
    }
    let found = fresh.store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|entry| matches!(entry.view, View::Completed { .. })));
}
