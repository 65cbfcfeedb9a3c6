//! Records in Redis 7 or a Redis Cluster.
//!
//! 1. **One script per verb.** A verb is one Lua script and one trip. Nothing else of that server runs meanwhile, so the
//!    step is atomic. Calls that wait at the same time go together, and a script decides each of them by itself. The
//!    scripts repeat the rules of [`semel::record`], and the comparison with it on random histories is their proof;
//!    reading goes through `record` itself.
//! 2. **Repeatable.** A claim by the attempt that runs gives it the same lease, a settlement that stands is answered
//!    again, and everything else is fenced. So it does no harm that a cluster's client sends a command again when it lost
//!    the answer.
//! 3. **Redis's clock** ([`TIME`](https://redis.io/commands/time/)) decides leases and retention. A script has one
//!    instant from its first line to its last, and replicas are sent what it wrote, not the script.
//! 4. **A record is one value**, its history beside it; both expire by themselves some minutes after they are
//!    forgotten. What runs, is unknown or is dead never expires. Three sorted sets lead to the records: by the time from
//!    which they wait, by the time at which a sweep has to do with them, and by key.
//! 5. **One slot.** A record and the sets that lead to it are written by one script, so they must lie in one slot of a
//!    cluster: the hash tag names one of 128 buckets. A single server has one bucket.
//! 6. **Not opened** on a server that evicts or keeps nothing on its disk, unless `?allow_loss=true` says so.
//!
//! # Limits
//!
//! - **An acknowledged write may be lost**: replication is asynchronous, and a log that is synced each second loses one.
//!   What is lost runs again. `?wait=N` asks N replicas to have a write before it is answered; a fail-over may still
//!   choose another replica, a write that was not answered may stay, and a replica that confirmed may not have it on its
//!   disk. So a route that is `critical` refuses this store.
//! - With `wait`, each of the two connections waits for the replicas before its next batch goes: a lone call waits no
//!   longer for them, and what comes meanwhile goes together.
//! - A hot bucket: in a cluster, all keys of one bucket are on one node; a single key is always there. 128 buckets over
//!   more than some ten nodes are uneven.
//! - Listing completed or released keys looks at all that a prefix names, [`Inspect::list`] in short calls; listing open
//!   ones reads the ids of all that is open.
//! - The sets are not freed by expiry but by [`sweep`](Store::sweep): without it they keep about a hundred bytes of each
//!   key for ever.
//! - Data of a single server is another layout than a cluster's: it cannot be carried over.
//! - Redis Sentinel is not spoken: give an address that leads to the primary.
//! - TLS uses the process's rustls provider; a program that builds in several must install one first.

mod address;
mod browse;
mod connection;
mod error;
mod lanes;
mod layout;
mod link;
mod reply;
mod scripts;
mod server;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel::{
    Claim, ClaimRequest, Cursor, Entry, Event, Filter, History, Inspect, Key, Lease, Past, Purpose, Scope,
    Settlement, Store, StoreError, Swept,
};

use crate::migrate::NoSchema;
use crate::{ConnectError, Connected, Migrate, Options};
use address::Address;
use error::Failure;
use layout::{Bucket, Layout, id};
use link::Link;
use reply::millis;
use scripts::Call;

/// Records that a sweep frees in one call to the server.
const SWEEP_PIECE: u32 = 64;

/// Records in Redis. See the [module](self) for what it promises.
pub struct RedisStore {
    link: Link,
    layout: Layout,
    shown: String,
    /// Where the next sweep begins, so that a small limit reaches every bucket.
    sweep_from: AtomicUsize,
}

impl RedisStore {
    /// Connects, and looks whether the server is fit to keep records.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the URL is none, the server cannot be reached within [`Options::busy_for`], refuses the user, is
    /// no Redis 7, or may lose records and was not allowed to.
    pub async fn open(url: &str, options: &Options) -> Result<RedisStore, ConnectError> {
        let address = Address::parse(url)?;
        let shown = address.shown();
        let unfit = |failure: Failure| ConnectError::Unavailable(format!("{shown}: {failure}").into());
        let link = Link::open(&address, options.busy_for).await.map_err(unfit)?;
        let layout = Layout::new(&address.parameters.prefix, address.is_cluster);
        server::check(&link, &layout, &address).await.map_err(unfit)?;
        Ok(RedisStore { link, layout, shown, sweep_from: AtomicUsize::new(0) })
    }

    /// A verb's call, as far as all of them are the same.
    fn verb(&self, script: &'static scripts::Script, scope: &Scope, key: &Key) -> Call {
        let (bucket, id) = (self.layout.bucket(key), id(scope, key));
        script.call().sets(self.layout.sets(bucket)).keys(self.layout.own(bucket, &id)).bytes(id)
    }

    fn fenced(&self, script: &'static scripts::Script, lease: &Lease) -> Call {
        self.verb(script, &lease.scope, &lease.key).number(lease.fence.0).bytes(lease.attempt.0)
    }

    /// One bucket's part of a sweep.
    async fn sweep_bucket(&self, bucket: Bucket, limit: u32) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        while swept.total() < limit {
            let piece = SWEEP_PIECE.min(limit - swept.total()) as usize;
            let due = self.ripe(self.layout.due(bucket), None, piece, "ripe").await?;
            if due.is_empty() {
                break;
            }
            let freed = self.free(bucket, due.into_iter().map(|(_, id)| id).collect()).await?;
            swept.outcomes += freed.outcomes;
            swept.records += freed.records;
        }
        Ok(swept)
    }

    async fn free(&self, bucket: Bucket, ids: Vec<Vec<u8>>) -> Result<Swept, StoreError> {
        let sets = [self.layout.due(bucket), self.layout.open(bucket), self.layout.index(bucket)];
        let records = ids.iter().flat_map(|id| self.layout.own(bucket, id));
        let call = scripts::SWEEP.call().keys(sets).keys(records);
        reply::swept(self.link.read(&ids.into_iter().fold(call, Call::bytes)).await?)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let call = self
            .verb(&scripts::CLAIM, &request.scope, &request.key)
            .bytes(request.attempt.0)
            .number(millis(request.lease_for))
            .bytes(request.label.as_str())
            .maybe(request.input.as_deref());
        let call = match &request.purpose {
            Purpose::Run { fingerprint, rerun, attempts_max } => call
                .bytes("run")
                .bytes(reply::fingerprint_bytes(fingerprint))
                .flag(*rerun)
                .number(*attempts_max),
            Purpose::Settle { seen, force } => call.bytes("settle").number(seen.0).flag(*force).nothing(1),
        };
        reply::claim(self.link.verb(call).await?, request)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let call = self.fenced(&scripts::RENEW, lease).number(millis(lease_for));
        reply::end(self.link.verb(call).await?)
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let call = self.fenced(&scripts::SETTLE, lease).flag(self.link.is_waiting_for_replicas());
        let call = match settlement {
            Settlement::Complete { outcome, replay_for, remember_for } => call
                .bytes("complete")
                .number(outcome.format)
                .bytes(&outcome.bytes[..])
                .number(millis(*replay_for))
                .number(millis(*remember_for)),
            Settlement::Release { not_before, unbind, ran, remember_for } => call
                .bytes("release")
                .number(millis(not_before.unwrap_or_default()))
                .flag(*unbind)
                .flag(*ran)
                .number(millis(*remember_for)),
            Settlement::Park { cause } => call.bytes("park").bytes(cause.as_str()).nothing(3),
            Settlement::Bury { cause } => call.bytes("bury").bytes(cause.as_str()).nothing(3),
        };
        reply::end(self.link.verb(call).await?)
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.find_record(scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.unsettled_entries(after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let buckets: Vec<Bucket> = self.layout.buckets().collect();
        let from = self.sweep_from.fetch_add(1, Ordering::Relaxed) % buckets.len();
        let mut swept = Swept::default();
        for bucket in buckets[from..].iter().chain(&buckets[..from]) {
            let freed = self.sweep_bucket(*bucket, limit - swept.total()).await?;
            swept.outcomes += freed.outcomes;
            swept.records += freed.records;
        }
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for RedisStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        self.list_entries(filter, after, limit).await
    }

    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.key_entries(key, limit).await
    }
}

#[async_trait]
impl History for RedisStore {
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError> {
        let own = self.layout.own(self.layout.bucket(key), &id(scope, key));
        let text = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
        let ran_for = event.ran_for.map(|ran_for| millis(ran_for).to_string());
        let call = scripts::APPEND
            .call()
            .keys(own)
            .bytes(event.attempt.0)
            .bytes(event.what.as_str())
            .number(event.fence.0)
            .number(event.attempts)
            .bytes(event.through.as_str())
            .maybe(event.cause.as_ref().map(|cause| cause.as_str().as_bytes()))
            .maybe(ran_for.as_deref().map(str::as_bytes))
            .maybe(text(&event.by).as_deref())
            .maybe(text(&event.reason).as_deref());
        self.link.read(&call).await?;
        Ok(())
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        let own = self.layout.own(self.layout.bucket(key), &id(scope, key));
        reply::history(self.link.read(&scripts::HISTORY.call().keys(own)).await?)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.shown).finish_non_exhaustive()
    }
}

pub(crate) async fn open(url: &str, options: &Options) -> Result<Connected, ConnectError> {
    // Replication is asynchronous, and a log need not be synced: no Redis is free of loss.
    RedisStore::open(url, options).await.map(|store| Connected::shared(store, true))
}

/// There is none: a record carries the number of its layout.
pub(crate) fn migrations(url: &str) -> Result<Arc<dyn Migrate>, ConnectError> {
    Address::parse(url)?;
    Ok(Arc::new(NoSchema))
}
