//! Files that are damaged: noticed, said, and never read as if nothing had been there.

use rusqlite::Connection;
use semel::testing::{Random, run};
use semel::{Claim, StoreError};

use super::*;

const PAGE: usize = 4_096;

#[test]
fn a_file_that_is_no_database_is_said_and_not_touched() {
    for bytes in
        [b"hello".to_vec(), vec![0xa5; 3 * PAGE], [b"SQLite format 3\0".to_vec(), vec![0xff; PAGE]].concat()]
    {
        let place = Place::new();
        std::fs::write(place.file(), &bytes).expect("a file");
        for opened in [open(&place.file()), open_as_it_is(&place.file())] {
            let corrupt = opened.expect_err("it is no database");
            assert!(matches!(corrupt, ConnectError::Corrupt(_)), "{corrupt}");
            assert!(corrupt.to_string().contains("semel.db"), "{corrupt}");
        }
        assert_eq!(std::fs::read(place.file()).expect("bytes"), bytes);
    }
}

/// A store of so many completed keys, all of it in the main file.
fn filled(place: &Place, keys: usize) {
    run(async {
        let store = place.store();
        for number in 0..keys {
            complete(&store, &format!("key-{number:05}"), number as u64).await;
        }
    });
}

/// Overwrites one page after another. Each key is then replayed as it was, or its claim fails as corrupt, while
/// other keys go on; no key that was completed may run again.
#[test]
fn a_damaged_page_is_an_error_for_its_keys_and_never_a_second_run() {
    const KEYS: usize = 400;
    let intact = Place::new();
    filled(&intact, KEYS);
    let bytes = std::fs::read(intact.file()).expect("bytes");
    let pages = bytes.len() / PAGE;
    assert!(pages > 20, "{pages} pages");
    let random = Random::new(7);
    let (mut corrupt, mut replayed) = (0, 0);
    // Not the first page: that one is the header, and opening fails.
    for page in 1..pages {
        let place = Place::new();
        std::fs::write(place.file(), with_garbage(&bytes, page, &random)).expect("a file");
        let Ok(store) = open(&place.file()) else { continue };
        for number in (0..KEYS).step_by(7) {
            let key = format!("key-{number:05}");
            match run(store.claim(&sample::run(&key, 1_000))) {
                Ok(Claim::Completed { outcome, .. }) if outcome.bytes == key => replayed += 1,
                Err(StoreError::Corrupt(_)) => corrupt += 1,
                other => panic!("page {page}, {key}: {other:?}"),
            }
        }
    }
    assert!(corrupt > 0 && replayed > corrupt, "{corrupt} corrupt, {replayed} replayed");
}

/// The page zeroed, as a lost write may leave it, or overwritten with anything.
fn with_garbage(bytes: &[u8], page: usize, random: &Random) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    let is_lost = random.chance(30);
    for byte in &mut damaged[page * PAGE..(page + 1) * PAGE] {
        *byte = if is_lost { 0 } else { random.next() as u8 };
    }
    damaged
}

/// What a crash of the machine leaves of the last commits is a WAL that ends early: what is whole counts.
#[test]
fn a_torn_wal_is_read_up_to_its_last_whole_commit() {
    let place = Place::new();
    let copy = Place::new();
    run(async {
        let store = place.store();
        for number in 0..20 {
            complete(&store, &format!("key-{number}"), number).await;
        }
        std::fs::copy(place.file(), copy.file()).expect("a copy");
        let wal = std::fs::read(place.file().with_extension("db-wal")).expect("a WAL");
        std::fs::write(copy.file().with_extension("db-wal"), &wal[..wal.len() - 1_000]).expect("a torn copy");
        let torn = open(&copy.file()).expect("it opens");
        for number in 0..19 {
            assert!(
                matches!(replay(&torn, &format!("key-{number}")).await, Claim::Completed { .. }),
                "{number}"
            );
        }
        let last = torn.claim(&sample::run("key-19", 99)).await.expect("an answer");
        assert_eq!(sample::name(&last), "in-flight", "its claim is there, its settlement was torn");
    });
}

/// Rows that another program wrote wrong.
#[test]
fn a_row_that_is_no_record_is_corrupt() {
    let place = Place::new();
    run(async {
        let store = place.store();
        complete(&store, "k", 1).await;
        complete(&store, "other", 2).await;
        let connection = Connection::open(place.file()).expect("a connection");
        connection.pragma_update(None, "ignore_check_constraints", true).expect("a pragma");
        connection.execute("UPDATE settled SET outcome = NULL WHERE key = 'k'", []).expect("an update");
        let corrupt = store.claim(&sample::run("k", 3)).await.expect_err("its outcome is gone");
        assert!(matches!(corrupt, StoreError::Corrupt(_)), "{corrupt}");
        assert!(corrupt.to_string().contains("keep a copy"), "{corrupt}");
        let corrupt = store.find(&sample::scope(), &sample::key("k")).await.expect_err("it reads the same");
        assert!(matches!(corrupt, StoreError::Corrupt(_)), "{corrupt}");
        assert!(matches!(replay(&store, "other").await, Claim::Completed { .. }));
    });
}
