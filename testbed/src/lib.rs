//! Development only: real servers on private ports with throw-away data, and a TCP proxy that injects faults.
//!
//! 1. A server is started by the test process, on a free port of 127.0.0.1, with its data in a folder of its own. It
//!    is ready when it answers on its port: nothing waits for a fixed time.
//! 2. [`postgres`], [`mariadb`], [`redis`] and [`rabbitmq`] share one server per test process, started by the first
//!    who asks. Each caller gets a database, a number or a prefix that nobody else has. The answers of such a server
//!    are right, its writes are not synced to the disk.
//! 3. [`Postgres::start`] and the others start one of the caller's own, to be stopped, killed, paused and restarted.
//! 4. No server outlives the test process, whether that ends, panics or is killed: the kernel signals the server when
//!    its parent is gone, and a keeper (a shell that waits for the end of a pipe) removes the data and what is left.
//! 5. `SEMEL_TEST_POSTGRES`, `SEMEL_TEST_MARIADB`, `SEMEL_TEST_REDIS` and `SEMEL_TEST_RABBITMQ` name the user's own
//!    servers by URL, in place of the shared ones. Databases made there are dropped again.
//! 6. A missing program is a panic that names Debian's package. Nothing is skipped.
//!
//! Limits: Linux only. Ports are found free and then taken, so another process may be quicker: the start is tried
//! again on another port. PostgreSQL, MariaDB and RabbitMQ refuse to run as root, so that root runs them as their
//! packages' users.

mod any;
mod database;
mod held;
mod home;
mod mariadb;
mod pgbouncer;
mod postgres;
mod process;
mod program;
mod proxy;
mod rabbitmq;
mod redis;
mod server;

pub use any::{AnyServer, Kind};
pub use database::{Broker, Database, at_address, mariadb, postgres, rabbitmq, redis};
pub use held::Held;
pub use home::{Filler, SmallDisk};
pub use mariadb::Mariadb;
pub use pgbouncer::Pgbouncer;
pub use postgres::Postgres;
pub use proxy::{Armed, Fault, Plan, Proxy};
pub use rabbitmq::Rabbitmq;
pub use redis::Redis;
pub use server::Settings;

/// How long anything may take that should take moments, on a machine that is busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(90);

/// Runs what blocks off the threads that serve.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(gone) => panic!("the runtime ended: {gone}"),
        },
    }
}
