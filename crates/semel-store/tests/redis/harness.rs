//! Redis stores for the suites, on a server and on a cluster of one node.
//!
//! Redis's clock cannot be set, so time goes on by moving every stored instant back (`shift.lua`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::{Harness, HistoryHarness, InspectHarness};
use semel::{History, Inspect, Store};
use semel_store::Options;
use semel_store::redis::RedisStore;
use semel_testbed::{Settings, redis};

/// A server's stores, each under a prefix of its own.
pub(crate) struct Server {
    url: String,
    is_cluster: bool,
    control: Mutex<::redis::Connection>,
    prefixes: Mutex<Vec<String>>,
    /// Whether the server forgets its scripts before every wait.
    forgetful: bool,
    _database: Option<semel_testbed::Database>,
}

impl Server {
    /// On a server.
    pub(crate) async fn single() -> Server {
        let database = redis().await;
        let url = database.url().to_owned();
        Server { _database: Some(database), ..Server::at(&url, false) }
    }

    /// On a server that forgets its scripts again and again.
    pub(crate) async fn forgetful() -> Server {
        Server { forgetful: true, ..Server::single().await }
    }

    /// On a cluster.
    pub(crate) async fn cluster() -> Server {
        static OWN: OnceLock<String> = OnceLock::new();
        static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _alone = STARTING.lock().await;
        if OWN.get().is_none() {
            OWN.set(start_cluster().await).expect("nobody else starts one");
        }
        Server::at(OWN.get().expect("it was started"), true)
    }

    fn at(url: &str, is_cluster: bool) -> Server {
        let control =
            ::redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection");
        let (control, prefixes) = (Mutex::new(control), Mutex::default());
        let url = url.to_owned();
        Server { url, is_cluster, control, prefixes, forgetful: false, _database: None }
    }

    /// Leaves the stores that were opened where they are in time.
    pub(crate) fn leave_all(&self) {
        self.prefixes.lock().expect("a list").clear();
    }

    /// The URL of the store opened last.
    fn latest(&self) -> String {
        let prefix = self.prefixes.lock().expect("a list").last().expect("one was opened").clone();
        let url =
            if self.is_cluster { self.url.replace("redis://", "redis+cluster://") } else { self.url.clone() };
        format!("{}?prefix={prefix}", url.trim_end_matches('/'))
    }

    async fn handle(&self) -> Arc<RedisStore> {
        let options = Options { busy_for: Duration::from_secs(60), ..Options::default() };
        Arc::new(RedisStore::open(&self.latest(), &options).await.expect("a store"))
    }

    async fn fresh(&self) -> Arc<RedisStore> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        self.prefixes.lock().expect("a list").push(prefix);
        self.handle().await
    }
}

/// One node that has all slots. It lives as long as the test process.
async fn start_cluster() -> String {
    let settings = Settings::fast().set("cluster-enabled", "yes");
    let server = semel_testbed::Redis::start_with(settings).await;
    let url = server.url();
    let mut control =
        ::redis::Client::open(url.as_str()).and_then(|client| client.get_connection()).expect("it runs");
    let mut slots = ::redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec(&mut control).expect("it takes all slots");
    let is_ready = |told: String| told.contains("cluster_state:ok");
    let started = std::time::Instant::now();
    while !is_ready(::redis::cmd("CLUSTER").arg("INFO").query(&mut control).expect("it tells")) {
        assert!(started.elapsed() < semel_testbed::DEADLINE, "the cluster does not form");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::mem::forget(server);
    url
}

#[async_trait]
impl Harness for Server {
    async fn open(&self) -> Arc<dyn Store> {
        self.fresh().await
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.handle().await
    }

    async fn advance(&self, by: Duration) {
        static SHIFT: &str = concat!(include_str!("../../src/redis/record.lua"), include_str!("shift.lua"));
        let millis = u64::try_from(by.as_millis()).expect("a time");
        let mut control = self.control.lock().expect("a connection");
        if self.forgetful {
            ::redis::cmd("SCRIPT").arg("FLUSH").exec(&mut *control).expect("it forgets");
        }
        for prefix in self.prefixes.lock().expect("a list").iter() {
            let mut shift = ::redis::cmd("EVAL");
            shift.arg(SHIFT).arg(0).arg(prefix).arg(if self.is_cluster { 128 } else { 1 }).arg(millis);
            shift.exec(&mut *control).expect("the clock moves");
        }
    }

    /// A machine that does much else.
    fn tolerance(&self) -> Duration {
        Duration::from_secs(4)
    }
}

#[async_trait]
impl HistoryHarness for Server {
    async fn open_history(&self) -> Arc<dyn History> {
        self.fresh().await
    }
}

#[async_trait]
impl InspectHarness for Server {
    async fn open_inspect(&self) -> Arc<dyn Inspect> {
        self.fresh().await
    }
}
