//! A database, a way to it that can be disturbed, and what is different between the servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::testing::sample::{key, lease, scope};
use semel::{Claim, ClaimRequest, Entry, Lease, Store, View};
use semel_store::{ConnectError, Options, connect};
use semel_testbed::{AnyServer, DEADLINE, Database, Kind, Proxy, Settings};

/// How long a call waits in these tests for what may come.
pub(crate) const BUSY: Duration = Duration::from_secs(2);

/// How long a wait with a bound may take on a machine that is busy: far longer than its bound, far shorter than ever.
pub(crate) const BOUNDED: Duration = Duration::from_secs(30);

/// One database, and a proxy before its server.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) proxy: Proxy,
    pub(crate) database: Database,
    server: Option<AnyServer>,
}

impl Place {
    /// On the server that the process shares.
    pub(crate) async fn shared(kind: Kind) -> Place {
        let database = kind.database().await;
        Place { kind, proxy: Proxy::before(database.addr()), database, server: None }
    }

    /// On a server of its own, which acknowledges nothing that its death would undo.
    pub(crate) async fn own(kind: Kind) -> Place {
        let settings = if kind == Kind::Redis { Settings::durable() } else { Settings::fast() };
        Place::with(kind, settings).await
    }

    pub(crate) async fn with(kind: Kind, settings: Settings) -> Place {
        let server = kind.start(settings).await;
        let database = server.database().await;
        Place { kind, proxy: Proxy::before(database.addr()), database, server: Some(server) }
    }

    pub(crate) fn server(&self) -> &AnyServer {
        self.server.as_ref().expect("a server of its own")
    }

    /// The URL through the proxy.
    pub(crate) fn url(&self) -> String {
        self.database.url_at(self.proxy.addr())
    }

    /// The store through the proxy.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        opened(&self.url()).await
    }

    /// The store past the proxy: it sees what is there.
    pub(crate) async fn beside(&self) -> Arc<dyn Store> {
        opened(self.database.url()).await
    }

    /// The setting that leaves a server few connections, and how many.
    pub(crate) fn narrow(kind: Kind) -> Settings {
        match kind {
            Kind::Postgres => Settings::fast().set("max_connections", "12"),
            Kind::Mariadb => Settings::fast().set("max-connections", "12"),
            Kind::Redis => Settings::fast().set("maxclients", "12"),
        }
    }

    /// A server that needs little room to begin with.
    pub(crate) fn small(kind: Kind) -> Settings {
        match kind {
            Kind::Postgres => Settings::fast().set("min_wal_size", "32MB").set("max_wal_size", "48MB"),
            Kind::Mariadb => Settings::fast().set("innodb-log-file-size", "8M"),
            // Redis syncs its log in the background, and refuses writes once that has failed.
            Kind::Redis => Settings::fast(),
        }
    }

    /// The same URL with another password, on a server that asks for one.
    pub(crate) async fn wrong_password(&self, password: &str) -> String {
        if self.kind == Kind::Redis {
            self.database.run("CONFIG SET requirepass semel-test").await;
            return self.database.url().replacen("redis://", &format!("redis://:{password}@"), 1);
        }
        self.database.url().replacen("semel-test", password, 1)
    }

    /// As a later program would leave it. Nothing where the store has no schema to be newer.
    pub(crate) async fn make_newer(&self) -> Option<()> {
        let statement = match self.kind {
            Kind::Postgres => "INSERT INTO semel.migrations (number, name) VALUES (900, 'later')",
            Kind::Mariadb => "INSERT INTO semel_schema VALUES (900, 'later', UTC_TIMESTAMP(6))",
            Kind::Redis => return None,
        };
        self.database.run(statement).await;
        Some(())
    }
}

pub(crate) async fn try_open(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let options = Options { migrate: true, busy_for: BUSY, ..Options::default() };
    Ok(connect(url, &options).await?.store)
}

pub(crate) async fn opened(url: &str) -> Arc<dyn Store> {
    try_open(url).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Repeats a call as whoever holds its lease or attempt id does, until it is answered. No function: a closure that lends
/// what it has cannot be sent to another thread.
macro_rules! patiently {
    ($call:expr) => {{
        let started = std::time::Instant::now();
        loop {
            match $call.await {
                Ok(answer) => break answer,
                Err(error) if error.is_transient() && started.elapsed() < semel_testbed::DEADLINE => {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                Err(error) => panic!("after {:?}: {error}", started.elapsed()),
            }
        }
    }};
}
pub(crate) use patiently;

pub(crate) async fn acquire(store: &Arc<dyn Store>, request: &ClaimRequest) -> Lease {
    lease(patiently!(store.claim(request)))
}

pub(crate) async fn claim(store: &Arc<dyn Store>, request: &ClaimRequest) -> Claim {
    patiently!(store.claim(request))
}

pub(crate) async fn find(store: &Arc<dyn Store>, text: &str) -> Option<Entry> {
    patiently!(store.find(&scope(), &key(text)))
}

/// Waits until the record reads as unknown: its lease has lapsed.
pub(crate) async fn lapsed(store: &Arc<dyn Store>, text: &str) {
    until("the lease lapses", async || {
        find(store, text).await.is_some_and(|entry| matches!(entry.view, View::Unknown { .. }))
    })
    .await;
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// It took no longer than what has a bound may take.
#[track_caller]
pub(crate) fn bounded(since: Instant) {
    assert!(since.elapsed() < BOUNDED, "it took {:?}", since.elapsed());
}
