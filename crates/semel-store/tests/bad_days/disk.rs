//! The disk is full at the database.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use semel::testing::Random;
use semel::testing::sample::{complete, name, run};
use semel::{ClaimRequest, Lease, Store, StoreError};
use semel_testbed::{Kind, SmallDisk};

use crate::place::{Place, acquire, bounded, claim, find, patiently};

/// Large and not to be compressed, so that there soon is no room.
fn large(text: &str, random: &Random) -> ClaimRequest {
    let bytes: Vec<u8> = (0..8192).flat_map(|_| random.next().to_le_bytes()).collect();
    ClaimRequest { input: Some(Bytes::from(bytes)), ..run(text, 1) }
}

/// Claims until one fails; gives what was claimed, and the failure.
async fn fill(store: &Arc<dyn Store>, random: &Random) -> (Vec<Lease>, StoreError) {
    let mut held = Vec::new();
    for number in 0..4000 {
        match store.claim(&large(&format!("fill-{number}"), random)).await {
            Ok(answer) => held.push(semel::testing::sample::lease(answer)),
            Err(error) => return (held, error),
        }
    }
    panic!("the disk does not fill");
}

/// A server may also fall over, as PostgreSQL does when it cannot write its log: it is started again when there is room.
pub(crate) async fn on_a_full_disk_new_claims_fail_and_go_on_when_there_is_room(kind: Kind) {
    let disk = SmallDisk::of_megabytes(160).await;
    let place = Place::with(kind, Place::small(kind).in_folder(disk.path())).await;
    let store = place.open().await;
    let first = acquire(&store, &run("first", 1)).await;
    let filler = disk.fill().await;
    let started = Instant::now();
    let (held, error) = fill(&store, &Random::new(7)).await;
    assert!(error.is_transient(), "what is full now is not full for ever: {error}");
    eprintln!("{kind:?}: full after {} claims: {error}", held.len());
    bounded(started);
    drop(filler);
    place.server().revive().await;

    // The claim that failed is repeated under its attempt id; what was claimed is still held.
    let failed = format!("fill-{}", held.len());
    let lease = acquire(&store, &run(&failed, 1)).await;
    assert_eq!(lease.attempts, 1);
    for lease in held.iter().chain([&first, &lease]) {
        let end = complete(lease.key.as_str());
        patiently!(store.settle(lease, &end));
    }
    for lease in held.iter().chain([&first, &lease]) {
        assert_eq!(name(&claim(&store, &run(lease.key.as_str(), 2)).await), "completed");
    }
    assert!(find(&store, "first").await.is_some());
}
