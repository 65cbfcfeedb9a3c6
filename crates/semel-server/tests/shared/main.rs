//! Several gateways on one store (G3): gateways are killed, the database is killed and restarted, connections are cut
//! after a commit and before its answer is heard. The service's ledger comes out exact: no key twice, every answer
//! replayed as it was, everything unknown resolved.
//!
//! `SEMEL_SEED` replays the random choices of a run (not its timing), `SEMEL_LONG=1` goes on for ten minutes with each
//! store. The servers are those of `testbed/`.

#[path = "../support/mod.rs"]
mod support;

#[path = "../crash/audit.rs"]
mod audit;
#[path = "../crash/load.rs"]
mod load;

mod campaign;
mod server;

use semel_testbed::Kind;

use campaign::Campaign;
use server::Server;

#[test]
fn g3_three_gateways_on_one_postgres() {
    Campaign::on(Server::start(Kind::Postgres)).run();
}

#[test]
fn g3_three_gateways_on_one_mariadb() {
    Campaign::on(Server::start(Kind::Mariadb)).run();
}

#[test]
fn g3_three_gateways_on_one_redis() {
    Campaign::on(Server::start(Kind::Redis)).run();
}
