//! The database that the gateways share, for tests that have no runtime of their own.

use std::net::SocketAddr;

use semel_testbed::{AnyServer, Kind, Settings};
use tokio::runtime::Runtime;

/// A server of this test's own. What it acknowledged survives its death.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    server: AnyServer,
    runtime: Runtime,
}

impl Server {
    /// Redis with `appendfsync always`: what is written once a second is lost with the server.
    pub(crate) fn start(kind: Kind) -> Server {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let settings = if kind == Kind::Redis { Settings::durable() } else { Settings::fast() };
        let server = runtime.block_on(kind.start(settings));
        Server { kind, server, runtime }
    }

    pub(crate) fn name(&self) -> String {
        format!("{:?}", self.kind)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// The store's URL.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Kills it, with what it was doing.
    pub(crate) fn kill(&self) {
        self.runtime.block_on(self.server.kill());
    }

    /// Starts it again, after an end in order when it runs.
    pub(crate) fn restart(&self) {
        self.runtime.block_on(self.server.restart());
    }
}
